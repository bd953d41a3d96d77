/** The reservations that are open: who holds them, and since when. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import type { HeldPicture, Picture } from "../types.ts";

/** Reservations that are shown. */
const SHOWN = 10;

interface HeldRow {
  element: HTMLTableSectionElement;
  since: HTMLElement;
  expires: HTMLElement;
}

export class Reservations {
  readonly element: HTMLElement;
  readonly #rows: Rows<HeldPicture, HeldRow>;
  readonly #summary = h("p", { class: "none" });
  #now = 0;

  constructor() {
    const body = table("Reservations that have been open for longest", ["Held by", "#open for", "#expires in"]);
    body.id = "reservations";
    body.classList.add("cards");
    this.#rows = new Rows(body, (held) => held.id, make, (row, held) => this.#update(row, held));
    this.element = h(
      "section",
      { class: "panel reservations empty", "aria-labelledby": "held-title" },
      h("header", {}, h("h2", { id: "held-title" }, "Reservations")),
      this.#summary,
      body,
    );
  }

  show({ reservations: { open, expired, oldest }, time_us: now }: Picture): void {
    this.#now = now;
    const ended = expired > 0 ? ` ${format.count(expired)} expired unsettled.` : "";
    say(this.#summary, `${open === 0 ? "None is open: POST /v1/reserve opens one." : `${format.count(open)} open.`}${ended}`);
    this.element.classList.toggle("empty", open === 0);
    this.#rows.show(oldest.slice(0, SHOWN));
  }

  #update(row: HeldRow, held: HeldPicture): void {
    say(row.since, format.duration(Math.max(0, this.#now - held.since_us)));
    say(row.expires, format.duration(Math.max(0, held.expires_us - this.#now)));
  }
}

function make(held: HeldPicture): HeldRow {
  const number = (label: string) => h("td", { class: "number", "data-label": label });
  const [since, expires] = [number("open for"), number("expires in")];
  const key = h("span", { class: "key", title: held.key }, held.key);
  const id = h("span", { class: "limit", title: held.id }, `${held.rule}, ${held.id}`);
  return { element: rowOf(h("th", { scope: "row" }, key, id), since, expires), since, expires };
}
