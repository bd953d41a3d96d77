/** How long decisions take, from a request to its answer. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { History } from "../history.ts";
import { Chart } from "../parts/chart.ts";

export class Latency {
  readonly element: HTMLElement;
  readonly #chart = new Chart({
    lines: [
      { label: "p50", colour: "--sea" },
      { label: "p99", colour: "--sand" },
    ],
    height: 128,
    format: (value) => format.round(value),
    least: 100,
    logarithmic: true,
  });
  readonly #p50 = h("strong", {}, "–");
  readonly #p99 = h("strong", {}, "–");

  constructor() {
    const figure = (value: HTMLElement, name: string, kind: string) =>
      h("div", { class: "figure small" }, value, h("span", { class: `swatch ${kind}` }, name));
    this.element = h(
      "section",
      { class: "panel latency", "aria-labelledby": "latency-title" },
      h(
        "header",
        {},
        h("h2", { id: "latency-title" }, "Latency"),
        h("div", { class: "figures" }, figure(this.#p50, "p50", "sea"), figure(this.#p99, "p99", "sand")),
      ),
      this.#chart.element,
    );
    this.#chart.element.setAttribute("role", "img");
    this.#chart.element.setAttribute("aria-label", "Latency");
  }

  show(history: History): void {
    const { moments, latest } = history;
    this.#chart.show(
      moments.map((moment) => moment.at),
      moments.map((moment) => moment.p50),
      moments.map((moment) => moment.p99),
    );
    if (!latest) return;
    const words = (value: number | null) => (value === null ? "–" : format.duration(value));
    say(this.#p50, words(latest.p50));
    say(this.#p99, words(latest.p99));
    const label = `Latency since this page was opened: p50 ${words(latest.p50)}, p99 ${words(latest.p99)}`;
    this.#chart.element.setAttribute("aria-label", label);
  }
}
