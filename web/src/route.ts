/** Addresses of the views, after the `#`: each can be kept, shared, and opened again. */

import { fromQuery, toPath, type CheckRequest } from "./request.ts";
import { RANGES, type Range } from "./timeline.ts";

export type Route =
  | { view: "overview"; range: Range }
  | { view: "rule"; rule: string; range: Range }
  | { view: "request"; request: CheckRequest }
  /** A version to compare with the one in force and to apply again. */
  | { view: "policy"; version: number | null }
  | { view: "audit" }
  | { view: "instances" }
  | { view: "playground" };

export const DEFAULT_RANGE: Range = "15m";

/** Reads an address; an unknown one is the overview. */
export function parse(hash: string): Route {
  const text = hash.replace(/^#?\/?/, "");
  const at = text.indexOf("?");
  const [path, query] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
  const [head = "", ...rest] = path.split("/");
  const tail = decode(rest.join("/"));
  const parameters = new URLSearchParams(query);
  const range = RANGES.find((name) => name === parameters.get("range")) ?? DEFAULT_RANGE;
  if (head === "rules" && tail) return { view: "rule", rule: tail, range };
  if (head === "keys") {
    const request = fromQuery(tail, parameters);
    if (request) return { view: "request", request };
  }
  if (head === "policy") return { view: "policy", version: /^\d{1,9}$/.test(tail) ? Number(tail) : null };
  if (head === "audit" || head === "instances" || head === "playground") return { view: head };
  return { view: "overview", range };
}

/** The address of a route. */
export function address(route: Route): string {
  switch (route.view) {
    case "overview":
      return `#/${ranged(route.range)}`;
    case "rule":
      return `#/rules/${encodeURIComponent(route.rule)}${ranged(route.range)}`;
    case "request":
      return `#/keys${toPath(route.request)}`;
    case "policy":
      return route.version === null ? "#/policy" : `#/policy/${route.version}`;
    case "audit":
    case "instances":
    case "playground":
      return `#/${route.view}`;
  }
}

const ranged = (range: Range) => (range === DEFAULT_RANGE ? "" : `?range=${range}`);

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
