/** What the token may do: what it may not do is not offered. */

import type { Session } from "./types.ts";

export type Right = "view" | "manage" | "admin";

const ALL: Right[] = ["view", "manage", "admin"];

export const NO_RIGHTS: Session = { identity: null, rights: [] };

let held: Set<string> = new Set();

/** Takes what the server says of the token, and puts it on the page: `data-needs` names the right that an element takes. */
export function setRights({ rights }: Session): void {
  held = new Set(rights.includes("admin") ? ALL : ALL.filter((right) => rights.includes(right)));
  document.body.dataset["rights"] = [...held].join(" ");
}

export function may(right: Right): boolean {
  return held.has(right);
}

/** What a reader is told who may not change anything, or not everything; nothing to one who may. */
export function restriction(): string {
  if (held.size === 0 || may("admin")) return "";
  return may("manage") ? "This token has the rights view and manage: it does not change the policy." : "Read only: this token has the right view.";
}

/** What is said in place of something that takes a right. */
export function lacking(what: string, right: Right): string {
  return `${what} takes the right ${right}. This token has ${held.size === 1 ? "the right" : "the rights"} ${[...held].join(" and ")}.`;
}
