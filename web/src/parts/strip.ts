/** One algorithm's decisions over time: admitted and refused requests, with the rate of the limit as a line. */

import { h, s, say } from "../dom.ts";
import * as format from "../format.ts";

const WIDTH = 640;
const HEIGHT = 72;
/** Room below for what leaves, where that is another time than it came. */
const BELOW = 12;
/** Parts of the axis of time. */
const MARKS = 4;

export interface Outcome {
  admitted: number;
  refused: number;
  burst: number;
  worst_window: number;
  worst_window_from_us: number;
  longest_delay_us: number;
  leaving: number[];
}

/** The measures that all strips of a run have in common. */
export interface Scale {
  slices: number;
  lengthUs: number;
  periodUs: number;
  count: number;
}

export class Strip {
  readonly element: HTMLElement;
  readonly #admitted = s("path", { class: "above" });
  readonly #refused = s("path", { class: "below" });
  readonly #leaving = s("path", { class: "leaving" });
  readonly #window = s("rect", { class: "window", y: 0, height: HEIGHT, width: 0 });
  readonly #rate = s("line", { class: "rate", x1: 0, x2: WIDTH });
  readonly #most = h("span", { class: "most" });
  readonly #times = h("div", { class: "times", "aria-hidden": "true" });
  readonly #title = h("h3");
  readonly #limit = h("code");
  readonly #numbers = h("p", { class: "numbers" });
  readonly #worst = h("p", { class: "worst" });
  readonly #picture: SVGSVGElement;

  constructor(name: string, limit: string) {
    say(this.#title, name);
    say(this.#limit, limit);
    this.#picture = s(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      this.#window,
      this.#refused,
      this.#admitted,
      this.#leaving,
      s("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
      this.#rate,
    );
    this.element = h(
      "article",
      { class: "strip", "data-algorithm": name.replace(" ", "-") },
      h("header", {}, this.#title, this.#limit),
      h("div", { class: "plot" }, h("div", { class: "rates", "aria-hidden": "true" }, this.#most, h("span", {}, "0")), this.#picture, this.#times),
      h("footer", {}, this.#numbers, this.#worst),
    );
  }

  /** The requests of each slice, and what was admitted of them; `most` is the height of the picture. */
  draw(offered: number[], admitted: number[], scale: Scale, most: number): void {
    const step = WIDTH / scale.slices;
    const bar = (index: number, low: number, high: number) => {
      const [top, bottom] = [HEIGHT - (high / most) * (HEIGHT - 4), HEIGHT - (low / most) * (HEIGHT - 4)];
      return high > low ? `M${(index * step).toFixed(2)},${bottom.toFixed(1)}V${top.toFixed(1)}h${(step * 0.82).toFixed(2)}V${bottom.toFixed(1)}Z` : "";
    };
    this.#admitted.setAttribute("d", admitted.map((value, index) => bar(index, 0, value)).join(""));
    this.#refused.setAttribute("d", offered.map((value, index) => bar(index, admitted[index] ?? 0, value)).join(""));
    this.#drawAxes(scale, most);
  }

  /** Rates per period of the limit on the left, times below. */
  #drawAxes({ slices, lengthUs, periodUs, count }: Scale, most: number): void {
    const period = format.round(periodUs);
    const slicesOfPeriod = (periodUs * slices) / lengthUs;
    say(this.#most, `${format.rate(most * slicesOfPeriod).replace(".0", "")} / ${period.replace(/^1 /, "")}`);
    const y = HEIGHT - (count / slicesOfPeriod / most) * (HEIGHT - 4);
    for (const end of ["y1", "y2"]) this.#rate.setAttribute(end, Math.max(1, y).toFixed(1));
    const marks = Array.from({ length: MARKS + 1 }, (_, mark) => h("span", {}, mark === 0 ? "0" : format.round((lengthUs * mark) / MARKS)));
    this.#times.replaceChildren(...marks);
  }

  /** What there is to say in the end. */
  finish(outcome: Outcome, scale: Scale): void {
    const all = outcome.admitted + outcome.refused;
    const delay = outcome.longest_delay_us > 0 ? ` · delayed by up to ${format.duration(outcome.longest_delay_us)}` : "";
    say(this.#numbers, `${format.count(outcome.admitted)} of ${format.count(all)} admitted (${format.percent(outcome.admitted, all)})${delay}`);
    const beyond = outcome.worst_window > scale.count;
    const [kind, why] = !beyond ? ["", ""] : this.#isBucket ? ["burst", ": its burst"] : ["over", ": more than the limit"];
    say(this.#worst, `up to ${format.count(outcome.worst_window)} within ${format.round(scale.periodUs)}, limit ${format.count(scale.count)}${why}`);
    for (const element of [this.#worst, this.#window]) {
      if (kind) element.dataset["kind"] = kind;
      else delete element.dataset["kind"];
    }
    const x = (us: number) => (us / scale.lengthUs) * WIDTH;
    this.#window.setAttribute("x", x(outcome.worst_window_from_us).toFixed(2));
    this.#window.setAttribute("width", outcome.worst_window > 0 ? x(scale.periodUs).toFixed(2) : "0");
    if (outcome.leaving.length > 0) this.#drawLeaving(outcome.leaving);
    this.#picture.setAttribute("aria-label", `${this.#title.textContent}: ${this.#numbers.textContent}, ${this.#worst.textContent}`);
  }

  /** Whether it admits a burst beyond its count by design. */
  get #isBucket(): boolean {
    return this.#title.textContent?.endsWith("bucket") ?? false;
  }

  #drawLeaving(leaving: number[]): void {
    const [step, most] = [WIDTH / leaving.length, Math.max(1, ...leaving)];
    const mark = (value: number, index: number) =>
      value > 0 ? `M${((index + 0.5) * step).toFixed(2)},${HEIGHT + 2}v${(1 + (value / most) * (BELOW - 3)).toFixed(1)}` : "";
    this.#leaving.setAttribute("d", leaving.map(mark).join(""));
    this.#picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT + BELOW}`);
    this.#picture.classList.add("taller");
  }
}
