/** Admitted and refused requests over the chosen range, of all rules or of one. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Live } from "../live.ts";
import { Chart } from "../parts/chart.ts";
import { Ranges } from "../parts/ranges.ts";
import { RANGE_WORDS, sum, type Range, type Series } from "../timeline.ts";

/** What is drawn: the counts of the range, and the rates of the last second. */
export interface FlowData {
  series: Series;
  now: { allowed: number; refused: number } | undefined;
  /** The address of the same view with another range. */
  addressOf: (range: Range) => string;
}

const MINUTE = 60e6;

export class Flow {
  readonly element: HTMLElement;
  readonly #chart: Chart;
  readonly #ranges = new Ranges();
  readonly #allowed = h("strong", {}, "–");
  readonly #refused = h("strong", {}, "–");
  readonly #total = h("p", { class: "caption total" });
  readonly #pause = h("button", { type: "button", class: "quiet pause", "aria-pressed": "false" }, "Pause");
  readonly #words: { admitted: string; refused: string };
  #stepUs = 1e6;

  /** A shadow rule decides nothing: what it would have refused does not look like a refusal. */
  constructor(private readonly live: Live, title: string, isShadow = false) {
    this.#words = isShadow ? { admitted: "would admit", refused: "would refuse" } : { admitted: "admitted", refused: "refused" };
    this.#chart = new Chart({
      lines: [
        { label: this.#words.admitted, colour: isShadow ? "--muted" : "--sea", filled: true, exact: format.exact },
        { label: this.#words.refused, colour: isShadow ? "--sand" : "--coral", filled: true, dashed: isShadow, exact: format.exact },
      ],
      height: 240,
      format: (value) => format.rate(value).replace(".0", ""),
      least: 4,
      waterline: true,
      when: (seconds) => this.#when(seconds),
    });
    if (!isShadow) {
      this.#allowed.className = "sea";
      this.#refused.className = "coral";
    }
    const figure = (value: HTMLElement, name: string) => h("div", { class: "figure" }, value, h("span", {}, `${name} / s`));
    this.element = h(
      "section",
      { class: "panel flow", "aria-label": title },
      h(
        "header",
        {},
        h("h2", {}, title),
        h("div", { class: "figures" }, figure(this.#allowed, this.#words.admitted), figure(this.#refused, this.#words.refused)),
      ),
      h("div", { class: "controls" }, this.#ranges.element, this.#pause, this.#total),
      this.#chart.element,
    );
    this.#chart.element.setAttribute("role", "img");
    this.#chart.element.setAttribute("aria-label", title);
    this.#pause.addEventListener("click", () => live.pause(!live.isPaused));
  }

  show({ series, now, addressOf }: FlowData): void {
    const { timeline, range, isPaused, picture } = this.live;
    this.#ranges.show(range, addressOf);
    this.#pause.setAttribute("aria-pressed", String(isPaused));
    this.#stepUs = timeline.stepUs;
    const { allowed, refused } = series;
    const times = timeline.times;
    // Of the time before the server started, nothing is known.
    const start = picture ? (picture.time_us - picture.uptime_us - this.#stepUs) / 1e6 : 0;
    const known = (count: number, step: number) => ((times[step] ?? 0) < start ? null : count);
    this.#chart.show(times, allowed.map(known), below(refused));
    const [passed, stopped] = [sum(allowed), sum(refused)];
    const { admitted, refused: word } = this.#words;
    const step = this.#stepUs < MINUTE ? "second" : "minute";
    const share = `${format.exact(passed)} ${admitted}, ${format.exact(stopped)} ${word} (${format.percent(stopped, passed + stopped)})`;
    const text = `Last ${RANGE_WORDS[range]}, by the ${step}: ${share}`;
    say(this.#total, text);
    this.#chart.element.setAttribute("aria-label", `${text}. The arrow keys tell the figures of each ${step}.`);
    say(this.#allowed, now ? format.rate(now.allowed) : "–");
    say(this.#refused, now ? format.rate(now.refused) : "–");
  }

  #when(seconds: number): string {
    const clock = (at: number) => format.clock(at * 1e6);
    if (this.#stepUs < MINUTE) return clock(seconds);
    const minute = (at: number) => clock(at).replace(/:\d\d$/, "");
    return `${minute(seconds)}–${minute(seconds + 60)}`;
  }
}

/** Values below the waterline; where nothing was refused, there is nothing to draw. */
function below(refused: number[]): (number | null)[] {
  const isNear = (step: number) => [step - 1, step, step + 1].some((near) => (refused[near] ?? 0) > 0);
  return refused.map((count, step) => (isNear(step) ? -count : null));
}
