/** The rules, each with its limit and its own small tide. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { History } from "../history.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import { Spark } from "../parts/spark.ts";
import type { Picture, RulePicture } from "../types.ts";

/** Seconds that a small picture shows. */
const SPARK_LENGTH = 120;

interface RuleRow {
  element: HTMLTableSectionElement;
  spark: Spark;
  limit: HTMLElement;
  now: HTMLElement;
  allowed: HTMLElement;
  refused: HTMLElement;
  degraded: HTMLElement;
}

export class Rules {
  readonly element: HTMLElement;
  readonly #rows: Rows<RulePicture, RuleRow>;
  #history: History | null = null;

  constructor() {
    const headings = ["Rule", "Last two minutes", "#now / s", "#admitted", "#refused", "#degraded"];
    const body = table("Rules with what they admitted and refused", headings);
    this.#rows = new Rows(body, (rule) => rule.rule, make, (row, rule) => this.#update(row, rule));
    this.element = h(
      "section",
      { class: "panel rules", "aria-labelledby": "rules-title" },
      h("header", {}, h("h2", { id: "rules-title" }, "Rules")),
      h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-labelledby": "rules-title" }, body),
    );
  }

  show(picture: Picture, history: History): void {
    this.#history = history;
    this.#rows.show(picture.rules);
  }

  #update(row: RuleRow, rule: RulePicture): void {
    say(row.limit, words(rule));
    const [allowed, refused] = rule.shadow
      ? [rule.shadow_allowed, rule.shadow_refused]
      : [rule.allowed, rule.refused];
    say(row.allowed, format.count(allowed));
    say(row.refused, format.count(refused));
    say(row.degraded, format.count(rule.degraded));
    row.degraded.classList.toggle("zero", rule.degraded === 0);
    row.refused.classList.toggle("coral", refused > 0);
    const moments = this.#history?.moments.slice(-SPARK_LENGTH) ?? [];
    const of = moments.map((moment) => moment.rules.get(rule.rule) ?? { allowed: 0, refused: 0 });
    row.spark.show(of.map((totals) => totals.allowed), of.map((totals) => totals.refused), SPARK_LENGTH);
    const last = of.at(-1);
    say(row.now, last ? format.rate(last.allowed + last.refused) : "–");
  }
}

function make(rule: RulePicture): RuleRow {
  const number = (label: string) => h("td", { class: "number", "data-label": label });
  const [now, allowed, refused, degraded] = [number("now / s"), number("admitted"), number("refused"), number("degraded")];
  const [spark, limit] = [new Spark(), h("span", { class: "limit" })];
  const name = h("th", { scope: "row" }, h("span", { class: "name" }, rule.rule), limit);
  const picture = h("td", { class: "sparks" }, spark.element);
  return { element: rowOf(name, picture, now, allowed, refused, degraded), spark, limit, now, allowed, refused, degraded };
}

/** Those who decide and are no rules. */
const OTHERS = new Map([
  ["denied", "those on the list that denies"],
  ["inline", "limits that came with requests"],
  ["unlimited", "whom no rule limits"],
]);

function words(rule: RulePicture): string {
  const limit = rule.limit ?? OTHERS.get(rule.rule) ?? "not in the policy";
  const by = rule.key === null ? "" : rule.key.length ? ` by ${rule.key.join(", ")}` : " for all together";
  const missing = rule.missing ? ` · ${format.count(rule.missing)} without a key attribute` : "";
  return `${limit}${by}${rule.shadow ? " · only watches" : ""}${missing}`;
}
