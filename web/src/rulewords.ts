/** Rules in words. */

import * as format from "./format.ts";
import type { RulePicture } from "./types.ts";

/** What decides without being a rule of the policy: its name, and what it stands for. */
const OTHERS = new Map([
  ["denied", ["Deny list", "requests that the deny list refuses"]],
  ["inline", ["Inline limits", "limits that were sent with requests"]],
  ["unlimited", ["No rule", "requests that no rule limits"]],
]);

const CANDIDATE = " (candidate)";

/** The name of a rule's candidate, as the server counts it. */
export function candidateOf(rule: string): string {
  return rule + CANDIDATE;
}

export function nameOf(rule: string): string {
  return OTHERS.get(rule)?.[0] ?? rule;
}

/** Its limit, its key, and whether it is a shadow rule. */
export function describe(rule: RulePicture): string {
  const limit = rule.limit ?? OTHERS.get(rule.rule)?.[1] ?? "not in the policy";
  const key = rule.key === null ? "" : rule.key.length ? ` by ${rule.key.join(", ")}` : " for all requests together";
  const missing = rule.missing ? ` · ${format.count(rule.missing)} without a key attribute` : "";
  return `${limit}${key}${rule.shadow && !rule.rule.endsWith(CANDIDATE) ? " · shadow" : ""}${missing}`;
}
