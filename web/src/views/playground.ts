/** The playground: one limit, one traffic, and all five algorithms side by side. */

import { lines } from "../api.ts";
import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { Strip, type Outcome, type Scale } from "../parts/strip.ts";
import { explainFailure, type View } from "./view.ts";
import { SHAPES, limitWords, periods, type Numbers, type Unit } from "../traffic.ts";

interface Begin {
  length_us: number;
  period_us: number;
  slices: number;
  algorithms: { name: string; limit: string }[];
  /** What each class of the traffic leaves to others; one, if all do alike. */
  floors?: string[];
}

/** What came, and what each algorithm admitted of it. */
interface Counts {
  offered: number;
  admitted: number[];
}

interface Slice extends Counts {
  number: number;
  /** The same of each class, if there are several. */
  classes?: Counts[];
}

interface End {
  requests: number;
  cut_short: boolean;
  /** For each algorithm, one for each class. */
  outcomes: Outcome[];
}

type Line = { begin: Begin } | { slice: Slice } | { end: End };

const ALGORITHMS = ["token bucket", "leaky bucket", "fixed window", "sliding log", "sliding counter"];

const ABOUT: Record<string, string> = {
  "token bucket": "Saves up to its burst, then lets pass at the rate. The usual choice.",
  "leaky bucket": "The same meter, and it delays each request: the marks below are when they leave, at an even pace.",
  "fixed window": "Counts in windows of the clock. Cheap; across a boundary it admits up to twice the limit.",
  "sliding log": "Remembers every request: no period ever holds more than the limit. Memory by the request.",
  "sliding counter": "Two counters that approximate the log, at the price of a window.",
};

export class Playground implements View {
  readonly title = "Playground";
  readonly element: HTMLElement;
  readonly #count = number("play-count", 10, 1, 1_000_000);
  readonly #burst = h("input", { id: "play-burst", type: "number", min: 1, max: 1_000_000, placeholder: "as the limit", inputmode: "numeric" });
  readonly #unit = h("select", { id: "play-unit", "aria-label": "Period" }, option("s", "a second"), option("min", "a minute"), option("h", "an hour"));
  readonly #shape = h("select", { id: "play-shape" }, ...SHAPES.map(({ id, name }) => option(id, name)), option("own", "In your own words"));
  readonly #words = h("input", { id: "play-words", type: "text", spellcheck: "false", autocomplete: "off", maxlength: 1_000 });
  readonly #length = number("play-length", 12, 1, 1_000);
  readonly #seed = number("play-seed", 1, 0, 2 ** 31);
  readonly #algorithm = h("select", { id: "play-algorithm" }, ...ALGORITHMS.map((name) => option(name, name)));
  readonly #about = h("p", { class: "hint about" });
  readonly #run = h("button", { type: "submit", class: "primary", id: "play-run" }, "Run");
  readonly #outcome = h("p", { class: "outcome", id: "play-outcome", role: "status" });
  readonly #strips = h("div", { class: "strips", id: "play-strips" });
  #running = new AbortController();
  #hasRun = false;

  constructor(private readonly onUnauthorized: () => void) {
    const field = (name: string, ...controls: HTMLElement[]) =>
      h("div", { class: "field" }, h("label", { for: controls[0]?.id ?? "" }, name), h("div", { class: "joined" }, ...controls));
    const form = h(
      "form",
      { class: "form" },
      field("Limit", this.#count, this.#unit),
      field("Burst", this.#burst),
      field("Algorithm to look at", this.#algorithm),
      field("Traffic", this.#shape),
      field("Periods to run", this.#length),
      field("Seed", this.#seed),
      h("div", { class: "field wide" }, h("label", { for: "play-words" }, "Traffic in words"), this.#words),
      syntax(),
      h("div", { class: "controls" }, this.#run, this.#about),
    );
    form.noValidate = false;
    this.element = h(
      "section",
      { class: "panel playground", "aria-labelledby": "play-title" },
      h("header", {}, h("h2", { id: "play-title" }, "Playground"), h("p", { class: "hint" }, "The server's own kernels decide, in virtual time. No key of yours is touched.")),
      form,
      this.#outcome,
      legend(),
      this.#strips,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#play();
    });
    for (const input of [this.#count, this.#burst, this.#unit, this.#shape]) input.addEventListener("input", () => this.#fill());
    this.#words.addEventListener("input", () => {
      this.#shape.value = "own";
      this.#tellAbout();
    });
    this.#algorithm.addEventListener("input", () => this.#mark());
    this.#fill();
  }

  /** Runs what is there, the first time that it is opened. */
  open(): void {
    if (!this.#hasRun) void this.#play();
  }

  get #numbers(): Numbers {
    const unit: Unit = this.#unit.value === "min" ? "min" : this.#unit.value === "h" ? "h" : "s";
    const burst = this.#burst.valueAsNumber;
    return { count: this.#count.valueAsNumber || 1, unit, burst: Number.isFinite(burst) ? burst : null };
  }

  #fill(): void {
    const shape = SHAPES.find(({ id }) => id === this.#shape.value);
    if (shape) this.#words.value = shape.words(this.#numbers);
    this.#tellAbout();
  }

  #tellAbout(): void {
    const shape = SHAPES.find(({ id }) => id === this.#shape.value);
    say(this.#about, shape?.about ?? "Such as: poisson 50/s; bob: bursts 200 every 1min within 2s");
  }

  #mark(): void {
    for (const strip of this.#strips.children) {
      const chosen = strip instanceof HTMLElement && strip.dataset["algorithm"] === this.#algorithm.value.replace(" ", "-");
      strip.classList.toggle("chosen", chosen);
    }
  }

  async #play(): Promise<void> {
    this.#running.abort();
    this.#running = new AbortController();
    const { signal } = this.#running;
    const numbers = this.#numbers;
    const asked = {
      limit: limitWords(numbers),
      traffic: this.#words.value,
      duration: periods(this.#length.valueAsNumber || 1, numbers.unit),
      seed: this.#seed.valueAsNumber || 0,
    };
    this.#outcome.classList.remove("problem");
    say(this.#outcome, "Deciding…");
    try {
      const run = new Run(this.#strips, numbers.count);
      const sending = { method: "POST", type: "application/json", body: JSON.stringify(asked), signal } as const;
      for await (const line of lines<Line>("/admin/v1/playground", sending)) run.take(line);
      this.#mark();
      if (signal.aborted) return;
      run.draw();
      this.#hasRun = true;
      say(this.#outcome, run.words);
    } catch (error) {
      if (signal.aborted) return;
      this.#outcome.classList.add("problem");
      // The strips of an earlier run are no answer to this one.
      this.#strips.replaceChildren();
      say(this.#outcome, explainFailure(error, this.onUnauthorized));
    }
  }
}

/** One run: what has been heard of it, and its drawing. */
class Run {
  /** For each algorithm, one for each class. */
  #strips: Strip[] = [];
  #classes = 1;
  #scale: Scale = { slices: 1, lengthUs: 1, periodUs: 1, count: 1 };
  /** What came of each class, and what was admitted for each strip. */
  #offered: number[][] = [];
  #admitted: number[][] = [];
  #end: End | null = null;

  constructor(
    private readonly place: HTMLElement,
    private readonly count: number,
  ) {}

  take(line: Line): void {
    if ("begin" in line) this.#begin(line.begin);
    else if ("slice" in line) {
      (line.slice.classes ?? [line.slice]).forEach(({ offered, admitted }, number) => {
        this.#offered[number]?.push(offered);
        admitted.forEach((units, algorithm) => this.#admitted[algorithm * this.#classes + number]?.push(units));
      });
    } else {
      this.#end = line.end;
    }
  }

  #begin({ slices, length_us, period_us, algorithms, floors = [] }: Begin): void {
    this.#scale = { slices, lengthUs: length_us, periodUs: period_us, count: this.count };
    this.#classes = Math.max(1, floors.length);
    const names = floors.length > 1 ? floors.map((floor) => ` · floor ${floor}`) : [""];
    this.#strips = algorithms.flatMap(({ name, limit }) =>
      names.map((words, number) => {
        const strip = new Strip(name, limit + words);
        if (number === names.length - 1) strip.element.append(h("p", { class: "hint" }, ABOUT[name] ?? ""));
        return strip;
      }),
    );
    this.#offered = names.map(() => []);
    this.#admitted = this.#strips.map(() => []);
    this.place.replaceChildren(...this.#strips.map((strip) => strip.element));
  }

  draw(): void {
    const most = Math.max(1, ...this.#offered.flat());
    this.#strips.forEach((strip, index) => {
      strip.draw(this.#offered[index % this.#classes] ?? [], this.#admitted[index] ?? [], this.#scale, most);
      const outcome = this.#end?.outcomes[index];
      if (outcome) strip.finish(outcome, this.#scale);
    });
  }

  get words(): string {
    if (!this.#end) return "The server broke off.";
    const cut = this.#end.cut_short ? " That is as many as one run may have: the rest was left out." : "";
    const times = this.#strips.length / this.#classes === 1 ? "once" : "five times";
    return `${format.count(this.#end.requests)} requests over ${format.round(this.#scale.lengthUs)} of virtual time, decided ${times}.${cut}`;
  }
}

/** What the marks of all strips mean. */
function legend(): HTMLElement {
  const entry = (kind: string, name: string) => h("li", { class: kind }, name);
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    entry("admitted", "admitted"),
    entry("refused", "refused"),
    entry("rate", "rate of the limit"),
    entry("busiest", "busiest period"),
    entry("busiest burst", "busiest period, with the burst of a bucket"),
    entry("busiest over", "busiest period, more than the limit"),
  );
}

const SYNTAX = [
  ["50/s", "evenly"],
  ["poisson 50/s", "by chance"],
  ["bursts 200 every 1min within 2s", "again and again"],
  ["on-off 100/s 5s on 10s off", "in turns"],
  ["diurnal 10/s to 100/s every 1h", "by chance, with a noon"],
  ["poisson 2/s cost 3 from 10s until 2min", "dearer, and only for a while"],
  ["poisson 1/s cost 4 actual 1..9 lasting 1s..5s", "reservations: charged as estimated, settled at their end"],
  ["alice: 5/s + bursts 20 every 10s; 20 clients: 1/s", "several clients, each with a limit of its own"],
  ["6/s + 12/s floor 50%", "classes: the second leaves half of the limit to the first"],
];

/** What traffic can be. */
function syntax(): HTMLElement {
  const rows = SYNTAX.map(([words = "", meaning = ""]) => h("div", {}, h("dt", {}, h("code", {}, words)), h("dd", {}, meaning)));
  return h("details", { class: "wide syntax" }, h("summary", {}, "What traffic can be"), h("dl", {}, ...rows));
}

function number(id: string, value: number, min: number, max: number): HTMLInputElement {
  return h("input", { id, type: "number", value, min, max, required: true, inputmode: "numeric" });
}

function option(value: string, name: string): HTMLOptionElement {
  return h("option", { value }, name);
}
