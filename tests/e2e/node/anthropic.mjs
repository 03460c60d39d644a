import Anthropic from "@anthropic-ai/sdk";
import { call, echoed, failure, getWeather, leaves, long, schema, server } from "./common.mjs";

const client = new Anthropic({ baseURL: server, apiKey: "none", maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const ask = (content, more = {}) => ({ model: "default", max_tokens: 1000, messages: [user(content)], ...more });
const tools = [{ name: "get_weather", input_schema: schema }];
const find = ({ content }, type) => content.find((block) => block.type === type);
const read = ({ name, input }) => ({ name, arguments: input });

const answer = await client.messages.create(ask("Hello 👋"));
let streamed = "";
for await (const event of await client.messages.create(ask("Hello 👋", { stream: true })))
  if (event.delta?.type === "text_delta") streamed += event.delta.text;

const thinking = { type: "enabled", budget_tokens: 1024 };
const thought = await client.messages.create(ask("#open-think\nHm.</think>Yes.", { thinking, max_tokens: 2000 }));
const final = await client.messages.stream(ask(call, { tools })).finalMessage();

const called = await client.messages.create(ask(echoed, { tools }));
const use = find(called, "tool_use");
const result = { type: "tool_result", tool_use_id: use.id, content: getWeather(use.input) };
const turns = [user(echoed), { role: "assistant", content: called.content }, user([result])];
const after = await client.messages.create({ ...ask(""), messages: turns, tools });
const { input_tokens } = await client.messages.countTokens({ model: "default", messages: [user("Hello 👋")] });
const { usage } = answer;
const read_tokens = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;

console.log(
  JSON.stringify({
    text: find(answer, "text").text,
    streamed,
    reasoning: find(thought, "thinking")?.thinking,
    call: read(use),
    streamedCall: read(find(final, "tool_use")),
    finish: final.stop_reason,
    afterTools: find(after, "text").text,
    counted: input_tokens === read_tokens,
    left: await leaves((signal) => client.messages.create(ask(long, { stream: true, max_tokens: 50_000 }), { signal })),
    status: await failure(() => client.messages.create({ ...ask("x"), model: "nope" })),
  }),
);
