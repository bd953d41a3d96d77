/** A small picture of one rule: what passed above the waterline, what was refused below it. */

import { s } from "../dom.ts";

const WIDTH = 150;
const HEIGHT = 34;

export class Spark {
  readonly element: SVGSVGElement;
  readonly #above = s("path", { class: "above" });
  readonly #below = s("path", { class: "below" });
  readonly #line = s("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 });

  constructor() {
    this.element = s(
      "svg",
      { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.#above,
      this.#below,
      this.#line,
    );
  }

  /** Counts per step, the latest last. */
  show(allowed: number[], refused: number[]): void {
    const [most, deepest] = [Math.max(0, ...allowed), Math.max(0, ...refused)];
    // One scale for both, so that they can be compared.
    const unit = (HEIGHT - 2) / Math.max(1, most + deepest);
    const waterline = HEIGHT - 1 - deepest * unit;
    for (const end of ["y1", "y2"]) this.#line.setAttribute(end, waterline.toFixed(1));
    this.#above.setAttribute("d", area(allowed, waterline, -unit));
    this.#below.setAttribute("d", area(refused, waterline, unit));
  }
}

function area(values: number[], waterline: number, unit: number): string {
  if (values.length < 2) return "";
  const step = WIDTH / (values.length - 1);
  const x = (index: number) => index * step;
  const points = values.map((value, index) => `${x(index).toFixed(1)},${(waterline + value * unit).toFixed(1)}`);
  return `M${x(0).toFixed(1)},${waterline.toFixed(1)}L${points.join("L")}L${WIDTH},${waterline.toFixed(1)}Z`;
}
