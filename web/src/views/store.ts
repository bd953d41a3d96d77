/** The store: whether it answers, and its counters. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Picture } from "../types.ts";

export class Store {
  readonly element: HTMLElement;
  readonly #words = h("p", { class: "health" });
  readonly #facts = h("dl", { class: "facts rows" });
  readonly #values = new Map<string, HTMLElement>();

  constructor() {
    this.element = h(
      "section",
      { class: "panel store", "aria-labelledby": "store-title" },
      h("header", {}, h("h2", { id: "store-title" }, "Store")),
      this.#words,
      this.#facts,
    );
  }

  show({ store, failures }: Picture): void {
    this.element.dataset["kind"] = store.reachable ? "good" : "bad";
    const counts: [string, number][] =
      store.kind === "memory"
        ? [
            ["Overflowed keys", store.overflows],
            ["Errors", failures],
          ]
        : [
            ["Outages", store.outages],
            ["Failed calls", store.failures],
            ["Calls skipped by the breaker", store.calls_skipped],
            ["Round trips", store.round_trips],
            ["Decided from leases", store.leased],
            ["Refusals from the cache", store.repeated],
            ["Errors", failures],
          ];
    say(this.#words, health(store.kind, store.reachable));
    for (const [name, value] of counts) this.#fact(name, format.count(value));
  }

  #fact(name: string, text: string): void {
    let value = this.#values.get(name);
    if (!value) {
      value = h("dd");
      this.#values.set(name, value);
      this.#facts.append(h("div", {}, h("dt", {}, name), value));
    }
    say(value, text);
  }
}

function health(kind: string, reachable: boolean): string {
  if (kind === "memory") return "In the memory of this process.";
  return reachable
    ? "Redis answers. The breaker is closed."
    : "Redis does not answer. The breaker is open, and the failure mode of each rule decides.";
}
