/** What passes and what is refused, over all rules: the waterline chart. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { History } from "../history.ts";
import { Chart } from "../parts/chart.ts";

export class Flow {
  readonly element: HTMLElement;
  readonly #chart = new Chart({
    lines: [
      { label: "admitted", colour: "--sea", filled: true },
      { label: "refused", colour: "--coral", filled: true },
    ],
    height: 264,
    format: (value) => format.rate(value).replace(".0", ""),
    least: 4,
    waterline: true,
  });
  readonly #allowed = h("strong", { class: "sea", id: "rate-admitted" }, "–");
  readonly #refused = h("strong", { class: "coral", id: "rate-refused" }, "–");
  readonly #share = h("strong", {}, "–");

  constructor() {
    const figure = (value: HTMLElement, name: string) => h("div", { class: "figure" }, value, h("span", {}, name));
    this.element = h(
      "section",
      { class: "panel flow", "aria-labelledby": "flow-title" },
      h(
        "header",
        {},
        h("h2", { id: "flow-title" }, "Tide"),
        h(
          "div",
          { class: "figures" },
          figure(this.#allowed, "admitted / s"),
          figure(this.#refused, "refused / s"),
          figure(this.#share, "refused of all"),
        ),
      ),
      this.#chart.element,
      h("p", { class: "caption" }, "Admitted above the waterline, refused below it: the last five minutes, by the second."),
    );
    this.#chart.element.setAttribute("role", "img");
  }

  show(history: History): void {
    const { moments, latest } = history;
    const isCalm = moments.every((moment) => moment.refused === 0);
    this.#chart.show(
      moments.map((moment) => moment.at),
      moments.map((moment) => moment.allowed),
      // Where nothing was refused, there is nothing to draw over the waterline.
      moments.map((moment) => (isCalm ? null : -moment.refused)),
    );
    if (!latest) return;
    say(this.#allowed, format.rate(latest.allowed));
    say(this.#refused, format.rate(latest.refused));
    say(this.#share, format.percent(latest.refused, latest.allowed + latest.refused));
    const words = `Now ${format.rate(latest.allowed)} admitted and ${format.rate(latest.refused)} refused per second`;
    this.#chart.element.setAttribute("aria-label", words);
  }
}
