/** One algorithm's answers over time: what came, what it admitted, what it refused. */

import { h, s, say } from "../dom.ts";
import * as format from "../format.ts";

const WIDTH = 640;
const HEIGHT = 72;
/** Room below for what leaves, where that is another time than it came. */
const BELOW = 12;

export interface Outcome {
  admitted: number;
  refused: number;
  burst: number;
  worst_window: number;
  worst_window_from_us: number;
  smoothness: number | null;
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
    );
    this.element = h(
      "article",
      { class: "strip", "data-algorithm": name.replace(" ", "-") },
      h("header", {}, this.#title, this.#limit),
      this.#picture,
      h("footer", {}, this.#numbers, this.#worst),
    );
  }

  /** What came in each slice so far, and what was admitted of it. */
  draw(offered: number[], admitted: number[], scale: Scale, most: number): void {
    const step = WIDTH / scale.slices;
    const bar = (index: number, low: number, high: number) => {
      const [top, bottom] = [HEIGHT - (high / most) * (HEIGHT - 4), HEIGHT - (low / most) * (HEIGHT - 4)];
      return high > low ? `M${(index * step).toFixed(2)},${bottom.toFixed(1)}V${top.toFixed(1)}h${(step * 0.82).toFixed(2)}V${bottom.toFixed(1)}Z` : "";
    };
    this.#admitted.setAttribute("d", admitted.map((value, index) => bar(index, 0, value)).join(""));
    this.#refused.setAttribute("d", offered.map((value, index) => bar(index, admitted[index] ?? 0, value)).join(""));
    const [passed, all] = [sum(admitted), sum(offered)];
    say(this.#numbers, `${format.count(passed)} of ${format.count(all)} admitted`);
  }

  /** What there is to say in the end. */
  finish(outcome: Outcome, scale: Scale): void {
    const all = outcome.admitted + outcome.refused;
    const smooth = outcome.smoothness === null ? "" : ` · ${Math.round(outcome.smoothness / 10)}% even`;
    const delay = outcome.longest_delay_us > 0 ? ` · told to wait up to ${format.duration(outcome.longest_delay_us)}` : "";
    say(this.#numbers, `${format.count(outcome.admitted)} of ${format.count(all)} admitted (${format.percent(outcome.admitted, all)})${smooth}${delay}`);
    const over = outcome.worst_window > scale.count;
    say(this.#worst, `up to ${format.count(outcome.worst_window)} within ${format.round(scale.periodUs)}`);
    this.#worst.classList.toggle("coral", over);
    const x = (us: number) => (us / scale.lengthUs) * WIDTH;
    this.#window.setAttribute("x", x(outcome.worst_window_from_us).toFixed(2));
    this.#window.setAttribute("width", outcome.worst_window > 0 ? x(scale.periodUs).toFixed(2) : "0");
    if (outcome.leaving.length > 0) this.#drawLeaving(outcome.leaving);
    this.#picture.setAttribute("aria-label", `${this.#title.textContent}: ${this.#numbers.textContent}, ${this.#worst.textContent}`);
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

function sum(values: number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
