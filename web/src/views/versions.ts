/** The versions of the policy since the start: who put each in force, when, and what it changed. */

import { h } from "../dom.ts";
import * as format from "../format.ts";
import { table } from "../parts/table.ts";
import { changed } from "../parts/verdict.ts";
import { address } from "../route.ts";
import type { PolicyVersion } from "../types.ts";

export class Versions {
  readonly element: HTMLElement;
  readonly #body = h("tbody");

  constructor() {
    const body = table("Versions of the policy, the latest first", ["Version", "Active from", "By", "Changes", ""]);
    body.id = "versions";
    body.classList.add("cards");
    body.append(this.#body);
    this.element = h(
      "section",
      { class: "panel versions", "aria-labelledby": "versions-title" },
      h("header", {}, h("h2", { id: "versions-title" }, "Versions"), h("p", { class: "hint" }, "The last 20 since the start of the server.")),
      body,
    );
  }

  show(versions: PolicyVersion[]): void {
    const rows = versions.map((version, place) => {
      const { generation, since_us, by, changes, file } = version;
      const time = h("time", { datetime: new Date(since_us / 1_000).toISOString() }, format.moment(since_us));
      const load = h("a", { class: "button", href: address({ view: "policy", version: generation }) }, "Compare", h("span", { class: "unseen" }, ` version ${generation}`));
      const none = generation === 1 ? "the first" : "no rule changed";
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, String(generation)),
        h("td", { class: "when" }, time),
        h("td", { "data-label": "by" }, file ? `${by}, from its file` : by),
        h("td", {}, ...(changes.length > 0 ? changed(changes) : [none])),
        h("td", { class: "actions" }, place === 0 ? "active" : load),
      );
    });
    this.#body.replaceChildren(...rows);
  }
}
