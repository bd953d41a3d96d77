/** The store: whether it answers, and what it has been through. */

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
            ["keys without room", store.overflows],
            ["questions without an answer", failures],
          ]
        : [
            ["outages", store.outages],
            ["calls that failed", store.failures],
            ["calls not made while away", store.turned_away],
            ["round trips", store.round_trips],
            ["from leases", store.leased],
            ["refusals repeated", store.repeated],
            ["questions without an answer", failures],
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
  if (kind === "memory") return "In this process: always there.";
  return reachable
    ? "Redis answers. The breaker is closed."
    : "Redis is away. The breaker is open, and the failure mode of each rule answers.";
}
