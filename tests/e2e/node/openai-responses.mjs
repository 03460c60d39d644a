import OpenAI from "openai";
import { baseURL, call, echoed, failure, getWeather, leaves, long, schema } from "./common.mjs";

const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const ask = (input, more = {}) => ({ model: "default", input, ...more });
const tools = [{ type: "function", name: "get_weather", parameters: schema, strict: false }];
const find = ({ output }, type) => output.find((item) => item.type === type);
const read = ({ name, arguments: text }) => ({ name, arguments: JSON.parse(text) });

const answer = await client.responses.create(ask("Hello 👋"));
let streamed = "";
for await (const event of await client.responses.create(ask("Hello 👋", { stream: true })))
  if (event.type === "response.output_text.delta") streamed += event.delta;

const thinking = await client.responses.create(ask("#open-think\nHm.</think>Yes."));
const final = await client.responses.stream(ask(call, { tools })).finalResponse();

const called = await client.responses.create(ask(echoed, { tools }));
const toCall = find(called, "function_call");
const result = { type: "function_call_output", call_id: toCall.call_id, output: getWeather(read(toCall).arguments) };
const after = await client.responses.create(ask([result], { tools, previous_response_id: called.id }));

console.log(
  JSON.stringify({
    text: answer.output_text,
    streamed,
    reasoning: find(thinking, "reasoning").content[0].text,
    call: read(toCall),
    streamedCall: read(find(final, "function_call")),
    finish: final.status,
    afterTools: after.output_text,
    continued: (await client.responses.retrieve(answer.id)).output_text,
    left: await leaves((signal) => client.responses.create(ask(long, { stream: true }), { signal })),
    status: await failure(() => client.responses.create({ ...ask("x"), model: "nope" })),
  }),
);
