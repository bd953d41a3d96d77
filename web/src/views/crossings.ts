/** The thresholds that were crossed last: whose, of which rule, and how long ago. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import type { CrossingPicture, Picture } from "../types.ts";

/** Crossings that are shown. */
const SHOWN = 10;

interface CrossingRow {
  element: HTMLTableSectionElement;
  ago: HTMLElement;
}

export class Crossings {
  readonly element: HTMLElement;
  readonly #rows: Rows<CrossingPicture, CrossingRow>;
  readonly #summary = h("p", { class: "none" }, "None was crossed. A rule with notify = [\"80%\"] tells here who nears its limit.");
  #now = 0;

  constructor() {
    const body = table("Thresholds that were crossed last", ["Key", "#threshold", "#used", "#ago"]);
    body.id = "crossings";
    body.classList.add("cards");
    const name = ({ at_us, rule, key, threshold }: CrossingPicture) => `${at_us} ${threshold} ${rule} ${key}`;
    this.#rows = new Rows(body, name, make, (row, crossing) => this.#update(row, crossing));
    this.element = h(
      "section",
      { class: "panel reservations crossings empty", "aria-labelledby": "crossings-title" },
      h("header", {}, h("h2", { id: "crossings-title" }, "Thresholds")),
      this.#summary,
      body,
    );
  }

  show({ crossings, time_us: now }: Picture): void {
    this.#now = now;
    this.element.classList.toggle("empty", crossings.length === 0);
    this.#summary.hidden = crossings.length > 0;
    this.#rows.show(crossings.slice(0, SHOWN));
  }

  #update(row: CrossingRow, crossing: CrossingPicture): void {
    say(row.ago, format.duration(Math.max(0, this.#now - crossing.at_us)));
  }
}

function make({ rule, key, threshold, used, limit, shadow }: CrossingPicture): CrossingRow {
  const number = (label: string, text = "") => h("td", { class: "number", "data-label": label }, text);
  const ago = number("ago");
  const who = h("span", { class: "key", title: key }, key);
  const what = h("span", { class: "limit", title: rule }, shadow ? `${rule}, shadow` : rule);
  const share = number("threshold", `${threshold}%`);
  const units = number("used", `${format.count(used)} of ${format.count(limit)}`);
  return { element: rowOf(h("th", { scope: "row" }, who, what), share, units, ago), ago };
}
