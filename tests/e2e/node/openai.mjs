import OpenAI from "openai";
import { baseURL, call, echoed, failure, getWeather, leaves, long, schema } from "./common.mjs";

const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const chat = client.chat.completions;
const ask = (content, more = {}) => ({ model: "default", messages: [{ role: "user", content }], ...more });
const definition = { name: "get_weather", parameters: schema };
const tools = [{ type: "function", function: definition }];
const read = ({ function: f }) => ({ name: f.name, arguments: JSON.parse(f.arguments) });

let streamed = "";
for await (const chunk of await chat.create(ask("Hello 👋", { stream: true })))
  streamed += chunk.choices[0].delta.content ?? "";

const prompt = { model: "default", prompt: "Hello 👋" };
let completedStream = "";
for await (const chunk of await client.completions.create({ ...prompt, stream: true }))
  completedStream += chunk.choices[0].text;

const whole = (await chat.create(ask(call, { tools }))).choices[0];
const final = (await chat.stream(ask(call, { tools })).finalChatCompletion()).choices[0];
const runnable = [{ type: "function", function: { ...definition, function: getWeather, parse: JSON.parse } }];

console.log(
  JSON.stringify({
    text: (await chat.create(ask("Hello 👋"))).choices[0].message.content,
    streamed,
    completed: (await client.completions.create(prompt)).choices[0].text,
    completedStream,
    reasoning: (await chat.create(ask("#open-think\nHm.</think>Yes."))).choices[0].message.reasoning_content,
    call: read(whole.message.tool_calls[0]),
    streamedCall: read(final.message.tool_calls[0]),
    finish: final.finish_reason,
    afterTools: await chat.runTools(ask(echoed, { tools: runnable })).finalContent(),
    left: await leaves((signal) => chat.create(ask(long, { stream: true }), { signal })),
    status: await failure(() => chat.create({ ...ask("x"), model: "nope" })),
  }),
);
