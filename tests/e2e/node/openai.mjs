import OpenAI from "openai";

const [baseURL, call] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const ask = (content, more = {}) => ({ model: "default", messages: [{ role: "user", content }], ...more });
const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object", properties: {} } } }];
const read = ({ function: f }) => ({ name: f.name, arguments: JSON.parse(f.arguments) });

const text = (await client.chat.completions.create(ask("Hello 👋"))).choices[0].message.content;

let streamed = "";
for await (const chunk of await client.chat.completions.create(ask("Hello 👋", { stream: true })))
  streamed += chunk.choices[0].delta.content ?? "";

const thinking = await client.chat.completions.create(ask("#open-think\nHm.</think>Yes."));
const whole = (await client.chat.completions.create(ask(call, { tools }))).choices[0];
const final = (await client.chat.completions.stream(ask(call, { tools })).finalChatCompletion()).choices[0];

let status = 0;
try {
  await client.chat.completions.create({ ...ask("x"), model: "nope" });
} catch (error) {
  status = error.status;
}

console.log(
  JSON.stringify({
    text,
    streamed,
    reasoning: thinking.choices[0].message.reasoning_content,
    call: read(whole.message.tool_calls[0]),
    streamedCall: read(final.message.tool_calls[0]),
    finish: final.finish_reason,
    status,
  }),
);
