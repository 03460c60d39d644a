// What the scripts share: the arguments they are given, the tool, and leaving an answer early.
import { readFileSync } from "node:fs";

export const [server, call, longFile, option] = process.argv.slice(2);
export const baseURL = `${server}/v1`;
export const long = readFileSync(longFile, "utf8"); // as a script it takes longer than anybody waits
export const echoed = `#echo-results\n${call}`;
export const schema = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "array", items: { type: "number" } } },
  required: ["city", "days"],
};
export const getWeather = ({ city }) => `sunny in ${city}`;

/** Leave a stream after its first event; say whether the server then has no request, while this process lives. */
export async function leaves(start) {
  const controller = new AbortController();
  try {
    for await (const _ of await start(controller.signal)) controller.abort();
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
  const deadline = Date.now() + 20_000;
  while (Date.now() < deadline) {
    const { models } = await (await fetch(`${server}/health`)).json();
    if (Object.values(models).every(({ requests }) => requests === 0)) return controller.signal.aborted;
  }
  return false;
}

/** Return the HTTP status with which a request fails. */
export async function failure(request) {
  try {
    await request();
  } catch (error) {
    return error.status ?? error.statusCode;
  }
}
