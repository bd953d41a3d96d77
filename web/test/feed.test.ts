import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Failure, readPolicy } from "../src/api.ts";
import { Feed, type Link } from "../src/feed.ts";
import { setToken, token } from "../src/session.ts";
import type { Picture } from "../src/types.ts";

/** What a browser would remember. */
function remembering(): void {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  };
  Object.defineProperty(globalThis, "sessionStorage", { configurable: true, get: () => storage });
}

/** Lets all that can happen now happen. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** A server whose answers are these, one after the other; keeps what it was asked with. */
function serving(...answers: ((signal: AbortSignal | null) => Response)[]): Headers[] {
  const asked: Headers[] = [];
  mock.method(globalThis, "fetch", async (_: string, { headers, signal }: { headers: Headers; signal: AbortSignal | null }) => {
    const answer = answers[asked.length];
    asked.push(headers);
    if (!answer) throw new TypeError("connection refused");
    return answer(signal);
  });
  return asked;
}

/** A stream that says this and then nothing, without an end. */
const silentAfter = (text: string) => (signal: AbortSignal | null) =>
  new Response(
    new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        signal?.addEventListener("abort", () => controller.error(signal.reason));
      },
    }),
  );

test("a server that falls silent is lost, and asked again", async () => {
  remembering();
  mock.timers.enable({ apis: ["setTimeout"] });
  const asked = serving(silentAfter('{"version":"1"}\n'), silentAfter('{"version":"2"}\n'));
  const [links, pictures]: [Link[], Picture[]] = [[], []];
  const feed = new Feed((picture) => void pictures.push(picture), (link) => void links.push(link));
  feed.start();
  await settled();
  assert.equal(links.at(-1)?.state, "live");
  mock.timers.tick(9_000);
  await settled();
  assert.equal(links.at(-1)?.state, "live", "a server may be busy for a while");
  mock.timers.tick(1_000);
  await settled();
  const lost = links.at(-1);
  assert.ok(lost?.state === "lost" && lost.why.includes("10 seconds"), JSON.stringify(lost));
  mock.timers.tick(500);
  await settled();
  assert.deepEqual([asked.length, links.at(-1)?.state, pictures.at(-1)?.version], [2, "live", "2"]);
  mock.timers.reset();
  mock.restoreAll();
});

test("a token is sent as the bytes of its text, and one that cannot be sent is not known", async () => {
  remembering();
  const answer = () => new Response("{}", { headers: { "content-type": "application/json" } });
  const asked = serving(answer);
  setToken("schlüssel ☃");
  await readPolicy();
  const sent = asked[0]?.get("authorization") ?? "";
  const bytes = Uint8Array.from(sent, (letter) => letter.charCodeAt(0));
  assert.equal(new TextDecoder().decode(bytes), "Bearer schlüssel ☃");
  setToken("a\u0000b");
  await assert.rejects(readPolicy, (error) => error instanceof Failure && error.isUnauthorized);
  assert.equal(asked.length, 1, "nothing is sent");
  mock.restoreAll();
});

test("a browser that keeps nothing is told the token for as long as the page is open", () => {
  const refuse = () => {
    throw new DOMException("The operation is insecure.", "SecurityError");
  };
  Object.defineProperty(globalThis, "sessionStorage", { configurable: true, get: refuse });
  assert.equal(token(), null);
  setToken("given");
  assert.equal(token(), "given");
  setToken(null);
  assert.equal(token(), null);
});
