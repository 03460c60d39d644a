import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, call] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "local", baseURL, apiKey: "none" });
const model = provider("default");
const common = { model, maxRetries: 0 };
const tools = {
  get_weather: tool({
    description: "Look at the sky",
    inputSchema: z.object({ city: z.string(), days: z.array(z.number()) }),
  }),
};
const read = ({ toolName, input }) => ({ name: toolName, arguments: input });

const { text } = await generateText({ ...common, prompt: "Hello 👋" });

let streamed = "";
for await (const piece of streamText({ ...common, prompt: "Hello 👋" }).textStream) streamed += piece;

const thinking = await generateText({ ...common, prompt: "#open-think\nHm.</think>Yes." });
const whole = await generateText({ ...common, prompt: call, tools });
const stream = streamText({ ...common, prompt: call, tools });
const streamedCalls = await stream.toolCalls;

let status = 0;
try {
  await generateText({ ...common, model: provider("nope"), prompt: "x" });
} catch (error) {
  status = error.statusCode;
}

console.log(
  JSON.stringify({
    text,
    streamed,
    reasoning: thinking.reasoningText,
    call: read(whole.toolCalls[0]),
    streamedCall: read(streamedCalls[0]),
    finish: await stream.finishReason,
    status,
  }),
);
