/** Who is refused most. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import type { Picture, TopRefused } from "../types.ts";

/** Keys that are shown. */
const SHOWN = 10;

interface TopRow {
  element: HTMLTableSectionElement;
  bar: HTMLMeterElement;
  count: HTMLElement;
}

export class Top {
  readonly element: HTMLElement;
  readonly #rows: Rows<TopRefused, TopRow>;
  readonly #none = h("p", { class: "none" }, "Nobody has been refused yet.");
  #most = 1;

  constructor() {
    const body = table("Keys that are refused most", ["Key", "#refused"]);
    body.id = "top-refused";
    this.#rows = new Rows(body, (top) => `${top.rule}\n${top.key}`, make, (row, top) => this.#update(row, top));
    this.element = h(
      "section",
      { class: "panel top empty", "aria-labelledby": "top-title" },
      h("header", {}, h("h2", { id: "top-title" }, "Refused most")),
      this.#none,
      body,
    );
  }

  show({ top_refused: all }: Picture): void {
    this.#most = Math.max(1, ...all.map((top) => top.refused));
    this.#none.hidden = all.length > 0;
    this.element.classList.toggle("empty", all.length === 0);
    this.#rows.show(all.slice(0, SHOWN));
  }

  #update(row: TopRow, top: TopRefused): void {
    row.bar.max = this.#most;
    row.bar.value = top.refused;
    const unsure = top.error > 0 ? `≤ ${format.count(top.refused)}` : format.count(top.refused);
    say(row.count, unsure);
  }
}

function make(top: TopRefused): TopRow {
  const bar = h("meter", { min: 0, "aria-hidden": "true" });
  const count = h("td", { class: "number" });
  const key = h("span", { class: "key", title: top.key }, top.key);
  const name = h("th", { scope: "row" }, key, h("span", { class: "limit" }, top.rule), bar);
  return { element: rowOf(name, count), bar, count };
}
