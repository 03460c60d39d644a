import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { baseURL, call, echoed, failure, getWeather, leaves, long, option } from "./common.mjs";

const makers = { "openai-compatible": createOpenAICompatible, openai: createOpenAI, anthropic: createAnthropic };
const provider = makers[option]({ name: "local", baseURL, apiKey: "none" });
const providerOptions = {
  anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
  openai: { reasoningSummary: "auto", forceReasoning: true },
};
const ask = (prompt, more = {}) => ({ model: provider("default"), maxRetries: 0, prompt, ...more });
const described = {
  description: "Look at the sky",
  inputSchema: z.object({ city: z.string(), days: z.array(z.number()) }),
};
const tools = { get_weather: tool(described) };
const executed = { get_weather: tool({ ...described, execute: getWeather }) };
const read = ({ toolName, input }) => ({ name: toolName, arguments: input });

let streamed = "";
for await (const piece of streamText(ask("Hello 👋")).textStream) streamed += piece;

const thinking = await generateText(ask("#open-think\nHm.</think>Yes.", { providerOptions }));
const whole = await generateText(ask(call, { tools }));
const stream = streamText(ask(call, { tools }));
const streamedCalls = await stream.toolCalls;
const looped = await generateText(ask(echoed, { tools: executed, stopWhen: stepCountIs(3) }));

console.log(
  JSON.stringify({
    text: (await generateText(ask("Hello 👋"))).text,
    streamed,
    reasoning: thinking.reasoningText,
    call: read(whole.toolCalls[0]),
    streamedCall: read(streamedCalls[0]),
    finish: await stream.finishReason,
    afterTools: looped.text,
    left: await leaves((abortSignal) => streamText(ask(long, { abortSignal })).textStream),
    status: await failure(() => generateText({ ...ask("x"), model: provider("nope") })),
  }),
);
