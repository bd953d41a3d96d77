/** How long decisions take, from a request to its answer: of all rules, or of one. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Live } from "../live.ts";
import { Chart } from "../parts/chart.ts";
import { RANGE_WORDS, type Quantiles } from "../timeline.ts";

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
  readonly #none = h("p", { class: "none", hidden: true });

  constructor(private readonly live: Live) {
    const figure = (value: HTMLElement, name: string, kind: string) =>
      h("div", { class: "figure small" }, value, h("span", { class: `swatch ${kind}` }, name));
    this.element = h(
      "section",
      { class: "panel latency", "aria-label": "Latency" },
      h(
        "header",
        {},
        h("h2", {}, "Latency"),
        h("div", { class: "figures" }, figure(this.#p50, "p50", "sea"), figure(this.#p99, "p99", "sand")),
      ),
      this.#none,
      this.#chart.element,
    );
    this.#chart.element.setAttribute("role", "img");
    this.#chart.element.setAttribute("aria-label", "Latency");
    this.#chart.element.hidden = true;
  }

  /** Over the range; `now` is of the last ten seconds. */
  show(now: Quantiles, rule?: string): void {
    const { timeline, range } = this.live;
    const { p50_us, p99_us } = timeline.took(rule);
    const isEmpty = p99_us.every((value) => value === null);
    this.#none.hidden = !isEmpty;
    this.#chart.element.hidden = isEmpty;
    const span = `the last ${RANGE_WORDS[range]}`;
    say(this.#none, `No request was decided in ${span}: choose a longer range.`);
    if (!isEmpty) this.#chart.show(timeline.times, p50_us, p99_us);
    const words = (value: number | null) => (value === null ? "–" : format.duration(value));
    say(this.#p50, words(now.p50));
    say(this.#p99, words(now.p99));
    this.#chart.element.setAttribute("aria-label", `Latency over ${span}. Now: p50 ${words(now.p50)}, p99 ${words(now.p99)}.`);
  }
}
