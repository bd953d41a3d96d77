/** Charts over time: uPlot in the page's colours, as wide as there is room. */

import uPlot from "uplot";
import { clock } from "../format.ts";
import { announce } from "./notice.ts";

export interface Line {
  label: string;
  /** The name of a colour of the style sheet, such as `--sea`. */
  colour: string;
  filled?: boolean;
  dashed?: boolean;
  /** How its values are told where the pointer is, if not as on the axis. */
  exact?: (value: number) => string;
}

export interface Options {
  lines: Line[];
  height: number;
  format: (value: number) => string;
  /** The least that the axis shows, so that little noise is not drawn large. */
  least: number;
  /** Draws a line at zero: what is below hangs from it. */
  waterline?: boolean;
  /** Shows ten times as much by the same step, for what differs that much. */
  logarithmic?: boolean;
  /** The time of a value in words, where the clock alone does not say it. */
  when?: (seconds: number) => string;
}

/** A chart of the last minutes. */
export class Chart {
  readonly element: HTMLElement;
  #plot: uPlot | null = null;
  #data: uPlot.AlignedData = [[]];
  /** The value that the arrows went to: several may share a pixel. */
  #picked: number | null = null;

  constructor(private readonly options: Options) {
    this.element = document.createElement("div");
    this.element.className = "chart";
    new ResizeObserver(() => this.#resize()).observe(this.element);
    document.addEventListener("themechange", () => this.#rebuild());
    this.element.tabIndex = 0;
    this.element.addEventListener("keydown", (event) => this.#step(event));
    this.element.addEventListener("pointermove", () => (this.#picked = null));
  }

  /** The arrows go from value to value, as the pointer does. */
  #step(event: KeyboardEvent): void {
    const plot = this.#plot;
    const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (!plot || by === 0) return;
    event.preventDefault();
    const last = plot.data[0].length - 1;
    const index = Math.min(last, Math.max(0, (this.#picked ?? plot.cursor.idx ?? last) + by));
    this.#picked = index;
    plot.setCursor({ left: plot.valToPos(plot.data[0][index] ?? 0, "x"), top: 0 });
    announce(this.element.querySelector(".readout")?.textContent ?? "");
  }

  /** Times in seconds, then one list for each line. */
  show(times: number[], ...values: (number | null)[][]): void {
    this.#data = [times, ...values];
    if (this.#plot) this.#plot.setData(this.#data);
    else this.#rebuild();
  }

  #resize(): void {
    const width = this.element.clientWidth;
    if (width > 0) this.#plot?.setSize({ width, height: this.#height });
  }

  /** As the style sheet has it, which knows the screen. */
  get #height(): number {
    return this.element.clientHeight || this.options.height;
  }

  #rebuild(): void {
    this.#plot?.destroy();
    const width = this.element.clientWidth || 320;
    this.#plot = new uPlot(this.#uplotOptions(width), this.#data, this.element);
  }

  #uplotOptions(width: number): uPlot.Options {
    const { lines, format, least, waterline, logarithmic, when } = this.options;
    const muted = colour("--muted");
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const grid = { stroke: colour("--line"), width: 1 };
    return {
      width,
      height: this.#height,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      padding: [8, 24, 0, 0],
      scales: {
        x: { time: true, range: (_plot, low, high) => [high - span(high - low), high] },
        y: logarithmic
          ? { distr: 3, range: (_plot, low, high) => decades(low, high, least) }
          : { range: (_plot, low, high) => range(low, high, least, waterline ?? false) },
      },
      axes: [
        { stroke: muted, font, grid: { show: false }, ticks: { show: false }, size: 22, space: 70, values: times },
        {
          stroke: muted,
          font,
          grid,
          ticks: { show: false },
          size: 48,
          space: 34,
          ...(logarithmic ? { splits: powersOfTen } : {}),
          // Of a logarithmic axis, splits without a label are null.
          values: (_plot, splits: (number | null)[]) => splits.map((split) => (split === null ? "" : format(Math.abs(split)))),
        },
      ],
      series: [
        {},
        ...lines.map((line) => ({
          label: line.label,
          stroke: colour(line.colour),
          width: 1.5,
          // A value without neighbours is no line: it is a point.
          points: logarithmic ? { show: true, size: 3, fill: colour(line.colour), filter: alone } : { show: false },
          spanGaps: false,
          ...(line.dashed ? { dash: [5, 4] } : {}),
          ...(line.filled ? { fill: `color-mix(in srgb, ${colour(line.colour)} 22%, transparent)` } : {}),
        })),
      ],
      hooks: { draw: waterline ? [drawWaterline] : [] },
      plugins: [readout(lines, format, when ?? ((seconds) => clock(seconds * 1e6)), (plot) => this.#picked ?? plot.cursor.idx)],
    };
  }
}

/** Seconds that are shown: a minute at first, and more as there is more to show. */
function span(seconds: number): number {
  return Math.max(60, seconds || 0);
}

function range(low: number, high: number, least: number, mirrored: boolean): [number, number] {
  const [top, bottom] = [Math.max(high ?? 0, least) * 1.08, mirrored ? Math.min((low ?? 0) * 1.08, 0) : 0];
  if (!mirrored) return [0, top];
  // Neither side is so thin that it could not be read.
  return [Math.min(bottom, -top / 4), Math.max(top, -bottom / 3)];
}

function decades(low: number, high: number, least: number): [number, number] {
  const [from, to] = [Math.floor(Math.log10(Math.max(low || least, 1))), Math.ceil(Math.log10(Math.max(high || least, least)))];
  return [10 ** from, 10 ** Math.max(to, from + 1)];
}

function powersOfTen(_plot: uPlot, _axis: number, low: number, high: number): number[] {
  const [from, to] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  return Array.from({ length: to - from + 1 }, (_, step) => 10 ** (from + step));
}

function alone(plot: uPlot, series: number): number[] {
  const values = plot.data[series] ?? [];
  const isNone = (place: number) => values[place] == null;
  return Array.from(values, (_, place) => place).filter((place) => !isNone(place) && isNone(place - 1) && isNone(place + 1));
}

function times(_plot: uPlot, splits: number[]): string[] {
  return splits.map((split) => clock(split * 1e6).replace(/:00$/, ""));
}

/** A colour of the style sheet, as it is now. */
function colour(name: string): string {
  const probe = document.createElement("span");
  probe.className = "probe";
  probe.style.setProperty("color", `var(${name})`);
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function drawWaterline(plot: uPlot): void {
  const y = Math.round(plot.valToPos(0, "y", true)) + 0.5;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--ink");
  ctx.globalAlpha = 0.55;
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/** What the lines say where the pointer is. */
function readout(
  lines: Line[],
  format: (value: number) => string,
  when: (seconds: number) => string,
  indexOf: (plot: uPlot) => number | null | undefined,
): uPlot.Plugin {
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  return {
    hooks: {
      init: (plot) => void plot.over.append(box),
      setCursor: (plot) => {
        const index = indexOf(plot);
        const time = index == null ? undefined : plot.data[0][index];
        box.hidden = index == null || time === undefined;
        if (index == null || time === undefined) return;
        const values = lines.map((_, number) => plot.data[number + 1]?.[index] ?? null);
        const isKnown = values.some((value) => value !== null);
        const said = lines.map(({ label, exact }, number) => {
          const value = values[number] ?? null;
          // A count that is not drawn is zero; a latency of no request is none.
          if (value === null) return exact && isKnown ? `${label} ${exact(0)}` : "";
          return `${label} ${(exact ?? format)(Math.abs(value))}`;
        });
        box.textContent = [when(time), ...said.filter(Boolean)].join("  ·  ");
        const left = plot.cursor.left ?? 0;
        box.classList.toggle("to-the-left", left > plot.over.clientWidth / 2);
        box.style.setProperty("--at", `${left}px`);
      },
    },
  };
}
