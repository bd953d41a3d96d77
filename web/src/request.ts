/** A request to the limiter: as a person types it, as an address, and as a command. */

/** What the server is asked about; see `Request` in /openapi.json. */
export interface CheckRequest {
  rule?: string;
  key?: string;
  attributes?: Record<string, string | number>;
  limit?: string;
  cost?: number;
  amounts?: Record<string, number>;
}

/** Names of parameters that are no attributes begin with this. */
const OWN = ".";

/** Reads `user=alice path="/a b"`, or a bare key; null if there is nothing. */
export function parseSearch(text: string): CheckRequest | null {
  const trimmed = text.trim();
  if (!trimmed) return null;
  const words = trimmed.match(/[^\s="]+=(?:"[^"]*"|\S*)|\S+/g) ?? [];
  const pairs = words.map((word) => /^([^\s="]+)=(?:"([^"]*)"|(.*))$/.exec(word));
  if (pairs.some((pair) => pair === null)) return { key: trimmed };
  return { attributes: Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? "", pair?.[2] ?? pair?.[3] ?? ""])) };
}

/** The same the other way: what a person would type. */
export function words({ key, attributes = {}, limit }: CheckRequest): string {
  const quoted = (value: string) => (/[\s"]/.test(value) || value === "" ? `"${value}"` : value);
  const pairs = Object.entries(attributes).map(([name, value]) => `${name}=${quoted(String(value))}`);
  return [...(key === undefined ? [] : [key]), ...pairs, ...(limit ? [`limit ${limit}`] : [])].join(" ");
}

/** The part of an address after `#/keys`. */
export function toPath({ key, attributes = {}, limit, cost, amounts = {} }: CheckRequest): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(attributes)) query.append(name, String(value));
  if (limit) query.append(`${OWN}limit`, limit);
  if (cost !== undefined && cost !== 1) query.append(`${OWN}cost`, String(cost));
  for (const [unit, amount] of Object.entries(amounts)) query.append(`${OWN}amount.${unit}`, String(amount));
  const text = query.toString();
  return `${key === undefined ? "" : `/${encodeURIComponent(key)}`}${text ? `?${text}` : ""}`;
}

/** Reads it again; null if it has neither a key nor an attribute. */
export function fromQuery(key: string, query: URLSearchParams): CheckRequest | null {
  const request: CheckRequest = {};
  const attributes: Record<string, string> = {};
  const amounts: Record<string, number> = {};
  for (const [name, value] of query) {
    if (name === `${OWN}limit`) request.limit = value;
    else if (name === `${OWN}cost`) request.cost = Number(value) || 0;
    else if (name.startsWith(`${OWN}amount.`)) amounts[name.slice(`${OWN}amount.`.length)] = Number(value) || 0;
    else attributes[name] = value;
  }
  if (key) request.key = key;
  if (Object.keys(attributes).length > 0) request.attributes = attributes;
  if (Object.keys(amounts).length > 0) request.amounts = amounts;
  return request.key === undefined && !request.attributes ? null : request;
}

/** Whether two requests are about the same key: cost and rule aside. */
export function isSame(one: CheckRequest, other: CheckRequest): boolean {
  const about = ({ key, attributes = {}, limit }: CheckRequest) =>
    JSON.stringify([key ?? null, limit ?? null, Object.entries(attributes).map(([name, value]) => [name, String(value)]).sort()]);
  return about(one) === about(other);
}

/** A command for a shell; the token is to be filled in. */
export function curl(request: CheckRequest, url: string, isSignedIn: boolean): string {
  const body = JSON.stringify(request).replaceAll("'", String.raw`'\''`);
  return `curl ${isSignedIn ? "-H 'authorization: Bearer TOKEN' " : ""}--json '${body}' ${url}`;
}
