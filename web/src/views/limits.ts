/** The limits of one rule: its own, and those of its overrides and tiers. */

import { readLimits } from "../api.ts";
import { h } from "../dom.ts";
import * as format from "../format.ts";
import { table } from "../parts/table.ts";
import type { PolicyPicture, RuleLimits } from "../types.ts";

export class Limits {
  readonly element = h("section", { class: "panel limits", "aria-label": "Limits", hidden: true });
  /** Which policy the limits are of: by number and time, as another process counts anew. */
  #loaded = "";
  #known: RuleLimits[] = [];
  #shown = "";

  show(rule: string, { generation, since_us }: PolicyPicture): void {
    const active = `${generation} ${since_us}`;
    if (active !== this.#loaded) {
      this.#loaded = active;
      void this.#load(rule);
    }
    this.#draw(rule);
  }

  async #load(rule: string): Promise<void> {
    try {
      this.#known = await readLimits();
      this.#draw(rule);
    } catch {
      // The stream says what is wrong; with the next picture it is tried again.
      this.#loaded = "";
    }
  }

  #draw(rule: string): void {
    const limits = this.#known.find((known) => known.rule === rule);
    this.element.hidden = !limits;
    const shown = JSON.stringify(limits);
    if (!limits || shown === this.#shown) return;
    this.#shown = shown;
    const { limit, exceptions, exceptions_in_all: all } = limits;
    const body = table("Limits of the rule", ["Requests", "Limit"]);
    body.id = "limits";
    const row = (when: string, words: string) => h("tr", {}, h("th", { scope: "row" }, when), h("td", {}, h("code", {}, words)));
    const rows = exceptions.map(({ attribute, value, limit }) => row(`${attribute} = ${value}`, limit));
    body.append(h("tbody", {}, ...rows, row(rows.length > 0 ? "all others" : "all", limit)));
    const more = all > exceptions.length ? `${format.count(exceptions.length)} of ${format.count(all)} tiers and overrides. ` : "";
    this.element.replaceChildren(
      h("header", {}, h("h2", {}, "Limits")),
      body,
      h("p", { class: "hint" }, more, h("a", { href: "#/policy" }, "See the policy")),
    );
  }
}
