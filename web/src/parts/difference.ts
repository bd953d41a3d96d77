/** A line diff, as a list of lines that were removed and added. */

import { diff, hunks } from "../diff.ts";
import { h } from "../dom.ts";

/** Unchanged lines around a change. */
const AROUND = 2;

const MARKS = { same: " ", removed: "-", added: "+" } as const;
const WORDS = { same: "", removed: "removed ", added: "added " } as const;

/** What becomes another line; null if nothing does. */
export function difference(before: string, after: string): HTMLElement | null {
  const all = diff(before, after);
  if (all.every(({ kind }) => kind === "same")) return null;
  const lines = hunks(all, AROUND).map((line) =>
    line === null
      ? h("div", { class: "gap" }, "…")
      : h("div", { class: line.kind }, h("span", { class: "unseen" }, WORDS[line.kind]), `${MARKS[line.kind]} ${line.text}`),
  );
  return h("div", { class: "difference", tabindex: "0", role: "region", "aria-label": "Changed lines" }, ...lines);
}
