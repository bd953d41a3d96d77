/** The keys that are refused most. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { requestOf } from "../keys.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import { address } from "../route.ts";
import { nameOf } from "../rulewords.ts";
import type { Picture, TopRefused } from "../types.ts";

/** Keys that are shown. */
const SHOWN = 10;

interface TopRow {
  element: HTMLTableSectionElement;
  key: HTMLAnchorElement;
  bar: HTMLMeterElement;
  count: HTMLElement;
}

export class Top {
  readonly element: HTMLElement;
  readonly #rows: Rows<TopRefused, TopRow>;
  readonly #none = h("p", { class: "none" }, "No key has been refused yet. Those that go over a limit are counted here.");
  #most = 1;
  #picture: Picture | null = null;

  constructor(id: string) {
    const body = table("Keys that are refused most", ["Key", "#refused"]);
    body.id = id;
    this.#rows = new Rows(body, (top) => `${top.rule}\n${top.key}`, make, (row, top) => this.#update(row, top));
    this.element = h(
      "section",
      { class: "panel top empty", "aria-label": "Most refused keys" },
      h("header", {}, h("h2", {}, "Most refused keys")),
      this.#none,
      body,
    );
  }

  /** The keys of all rules, or of one. */
  show(picture: Picture, rule?: string): void {
    this.#picture = picture;
    const all = picture.top_refused.filter((top) => rule === undefined || top.rule === rule);
    this.#most = Math.max(1, ...all.map((top) => top.refused));
    this.#none.hidden = all.length > 0;
    this.element.classList.toggle("empty", all.length === 0);
    this.#rows.show(all.slice(0, SHOWN));
  }

  #update(row: TopRow, top: TopRefused): void {
    row.bar.max = this.#most;
    row.bar.value = top.refused;
    const request = this.#picture && requestOf(this.#picture, top.rule, top.key);
    if (request) row.key.href = address({ view: "request", request });
    say(row.count, `${top.error > 0 ? "≤ " : ""}${format.count(top.refused)}`);
  }
}

function make(top: TopRefused): TopRow {
  const bar = h("meter", { min: 0, "aria-hidden": "true" });
  const count = h("td", { class: "number" });
  const key = h("a", { class: "key", title: top.key }, top.key);
  const name = h("th", { scope: "row" }, key, h("span", { class: "limit" }, nameOf(top.rule)), bar);
  return { element: rowOf(name, count), key, bar, count };
}
