/** The choice of how far to look back: links, so that each has an address. */

import { h } from "../dom.ts";
import { RANGES, RANGE_WORDS, type Range } from "../timeline.ts";

export class Ranges {
  readonly element = h("div", { class: "ranges", role: "group", "aria-label": "Range" });
  #shown = "";

  show(chosen: Range, addressOf: (range: Range) => string): void {
    const addresses = RANGES.map(addressOf);
    const shown = [chosen, ...addresses].join("\n");
    if (shown === this.#shown) return;
    this.#shown = shown;
    const links = RANGES.map((range, place) =>
      h("a", { href: addresses[place], "aria-current": range === chosen ? "true" : null }, RANGE_WORDS[range]),
    );
    this.element.replaceChildren(...links);
  }
}
