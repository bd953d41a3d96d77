/** The server's API: the token goes along in a header, never in an address. */

import { token } from "./session.ts";
import type { CheckRequest } from "./request.ts";
import type { Schema } from "./schema.ts";
import type { Range } from "./timeline.ts";
import type { Answer, Applied, AuditEntry, Explained, Picture, PolicyDocument, PolicyVersion, RuleLimits, Session, ToldHistory, Trial, Validated } from "./types.ts";

/** Why there is no answer, in words for people. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }

  /** Whether another token would help. */
  get isUnauthorized(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

interface Sending {
  method?: "GET" | "POST" | "PUT";
  body?: string;
  type?: string;
  signal?: AbortSignal;
}

async function send(path: string, { method = "GET", body, type, signal }: Sending = {}): Promise<Response> {
  const headers = new Headers();
  const known = token();
  if (known && !authorize(headers, known)) throw new Failure(401, UNKNOWN_TOKEN);
  if (type) headers.set("content-type", type);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body ?? null,
      signal: signal ?? null,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    if (error instanceof DOMException && error.name === "TimeoutError") throw new Failure(0, "The server has not answered in time.");
    throw new Failure(0, "The server does not answer.");
  }
  if (response.ok) return response;
  throw new Failure(response.status, await explain(response));
}

const UNKNOWN_TOKEN = "The server does not know this token.";

/** Puts the token into a header, whose letters are bytes; says whether it can stand there. */
function authorize(headers: Headers, known: string): boolean {
  const bytes = new TextEncoder().encode(`Bearer ${known}`);
  try {
    headers.set("authorization", Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    return true;
  } catch {
    return false;
  }
}

async function explain(response: Response): Promise<string> {
  if (response.status === 401) {
    return token() ? UNKNOWN_TOKEN : "The server asks for a token.";
  }
  if (response.status === 404) return "This server runs without its admin API (--no-admin).";
  const problem: unknown = await response.json().catch(() => null);
  if (problem && typeof problem === "object" && "detail" in problem && typeof problem.detail === "string") {
    return problem.detail;
  }
  return `The server answered ${response.status}.`;
}

/** Lines of JSON, as they arrive. */
export async function* lines<T>(path: string, sending: Sending = {}): AsyncGenerator<T> {
  const response = await send(path, sending);
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const whole = rest.split("\n");
      rest = whole.pop() ?? "";
      for (const line of whole) if (line) yield JSON.parse(line) as T;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

async function json<T>(path: string, sending?: Sending): Promise<T> {
  return (await (await send(path, sending)).json()) as T;
}

/** Milliseconds after which another server is taken to be away. */
const INSTANCE_TIMEOUT = 5_000;

const JSON_TYPE = "application/json";

/** Where a request is explained without a charge. */
export const INSPECT = "/admin/v1/keys/inspect";

export function explainKey(request: CheckRequest): Promise<Explained> {
  return json(INSPECT, { method: "POST", type: JSON_TYPE, body: JSON.stringify(request) });
}

/** Gives back what a key was charged: all of it, or the cost of the request. The reason goes to the audit log. */
export function giveBack(how: "reset" | "refund", request: CheckRequest, reason: string): Promise<Answer> {
  const path = `/admin/v1/keys/${how}?${new URLSearchParams({ reason })}`;
  return json(path, { method: "POST", type: JSON_TYPE, body: JSON.stringify(request) });
}

export function readSession(): Promise<Session> {
  return json("/admin/v1/session");
}

/** The other servers whose figures the page may show. */
export function readInstances(): Promise<{ instances: string[] }> {
  return json("/admin/v1/instances");
}

/** A picture of another server: one of those that this one names. */
export function readLiveOf(origin: string, signal: AbortSignal): Promise<Picture> {
  return json(`${origin}/admin/v1/live`, { signal: AbortSignal.any([signal, AbortSignal.timeout(INSTANCE_TIMEOUT)]) });
}

export function readHistory(range: Range): Promise<ToldHistory> {
  return json(`/admin/v1/history?range=${range}`);
}

export function readAudit(): Promise<AuditEntry[]> {
  return json("/admin/v1/audit");
}

export function readVersions(): Promise<PolicyVersion[]> {
  return json("/admin/v1/policy/versions");
}

export function readPolicy(): Promise<PolicyDocument> {
  return json("/admin/v1/policy");
}

export function readLimits(): Promise<RuleLimits[]> {
  return json("/admin/v1/policy/limits");
}

/** The JSON Schema of policies. */
export function readSchema(): Promise<Schema> {
  return json("/admin/v1/policy/schema");
}

const typeOf = (format: PolicyDocument["format"]) => `application/${format}`;

export function validatePolicy(text: string, format: PolicyDocument["format"]): Promise<Validated> {
  return json("/admin/v1/policy/validate", { method: "POST", type: typeOf(format), body: text });
}

/** Lets the active policy and this one decide the server's last requests; one with errors is answered as if validated. */
export function tryPolicy(text: string, format: PolicyDocument["format"]): Promise<Trial | Validated> {
  return json("/admin/v1/policy/trial", { method: "POST", type: typeOf(format), body: text });
}

export function applyPolicy(text: string, format: PolicyDocument["format"]): Promise<Applied> {
  return json("/admin/v1/policy", { method: "PUT", type: typeOf(format), body: text });
}
