/** Recent refusals, the latest first; each key leads to its page. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { aboutKey } from "../keys.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import { address } from "../route.ts";
import { nameOf } from "../rulewords.ts";
import type { RefusalPicture } from "../types.ts";

interface RefusalRow {
  element: HTMLTableSectionElement;
  time: HTMLTimeElement;
  times: HTMLElement;
  cost: HTMLElement;
  wait: HTMLElement;
}

export class Refusals {
  readonly element: HTMLElement;
  readonly #rows: Rows<RefusalPicture, RefusalRow>;
  readonly #none: HTMLElement;
  readonly #held = h("span", { class: "held", hidden: true }, "paused under the pointer");
  readonly #all = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showAll() });
  #refusals: RefusalPicture[] = [];
  #now = 0;

  /** Shows so many until all are asked for. */
  constructor(id: string, title: string, none: string, private shown: number) {
    this.#none = h("p", { class: "none" }, none);
    const body = table(`${title}, the latest first`, ["When", "Rule", "Key", "#times", "#cost", "#retry after"]);
    body.id = id;
    body.classList.add("cards");
    const name = (refusal: RefusalPicture) => `${refusal.rule}\n${refusal.key}`;
    this.#rows = new Rows(body, name, make, (row, refusal) => this.#update(row, refusal));
    this.element = h(
      "section",
      { class: "panel refusals empty", "aria-label": title },
      h("header", {}, h("h2", {}, title), this.#held),
      this.#none,
      body,
      this.#all,
    );
    // What was held shows up once the pointer and the focus have left.
    for (const leaving of ["pointerleave", "focusout"]) {
      this.element.addEventListener(leaving, () => setTimeout(() => this.#refresh()));
    }
  }

  show(refusals: RefusalPicture[], now: number): void {
    this.#refusals = refusals;
    this.#now = now;
    this.#refresh();
  }

  /** Nothing moves under a pointer or a focus. */
  get #isHeld(): boolean {
    const pointed = matchMedia("(hover: hover)").matches && this.element.matches(":hover");
    return pointed || this.element.contains(document.activeElement);
  }

  #refresh(): void {
    const all = this.#refusals;
    const held = this.#isHeld && this.#none.hidden;
    this.#held.hidden = !held;
    if (held) return;
    this.#none.hidden = all.length > 0;
    this.element.classList.toggle("empty", all.length === 0);
    this.#rows.show(all.slice(0, this.shown));
    this.#all.hidden = all.length <= this.shown;
    say(this.#all, `Show all ${all.length}`);
  }

  #showAll(): void {
    this.shown = Infinity;
    this.#all.blur();
    this.#refresh();
  }

  #update(row: RefusalRow, refusal: RefusalPicture): void {
    say(row.time, format.ago(this.#now - refusal.at_us));
    row.time.dateTime = new Date(refusal.at_us / 1_000).toISOString();
    row.time.title = format.clock(refusal.at_us);
    say(row.times, format.count(refusal.times));
    say(row.cost, format.count(refusal.cost));
    // On a phone, only a cost that is another than usual is told.
    row.cost.classList.toggle("usual", refusal.cost === 1);
    say(row.wait, refusal.retry_after_us === null ? "never" : format.duration(refusal.retry_after_us));
  }
}

/** Why a key has no page. */
const UNNAMED = "This request cannot be explained: it came from Envoy's descriptor files, is not text, or has more than 4 KiB.";

function make(refusal: RefusalPicture): RefusalRow {
  const number = (label: string) => h("td", { class: "number", "data-label": label });
  const [times, cost, wait] = [number("times"), number("cost"), number("retry after")];
  const time = h("time");
  const key = refusal.request
    ? h("a", { href: address({ view: "request", request: aboutKey(refusal.request) }) }, refusal.key)
    : h("span", { title: UNNAMED }, refusal.key);
  const element = rowOf(
    h("td", { class: "when" }, time),
    h("td", { class: "rule" }, nameOf(refusal.rule)),
    h("th", { scope: "row", class: "key" }, key),
    times,
    cost,
    wait,
  );
  return { element, time, times, cost, wait };
}
