/** The rules, each with its limit and a small chart of the range. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Live } from "../live.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import { Spark } from "../parts/spark.ts";
import { address } from "../route.ts";
import { describe, nameOf } from "../rulewords.ts";
import { RANGE_WORDS, condense } from "../timeline.ts";
import type { RulePicture } from "../types.ts";

/** Rules that are shown on a phone until all are asked for: as many as in the style sheet. */
const FEW = 6;

/** Points of a small chart. */
const SPARK_POINTS = 120;

/** Columns of numbers, in their order: what they hold, and what hides them while all of it is zero. */
const COLUMNS = [
  { name: "admitted / s", hides: "admitted" },
  { name: "refused / s", hides: "refused" },
  { name: "admitted", hides: "admitted" },
  { name: "refused", hides: "refused" },
  { name: "degraded", hides: "degraded" },
] as const;

interface RuleRow {
  element: HTMLTableSectionElement;
  spark: Spark;
  link: HTMLAnchorElement;
  limit: HTMLElement;
  cells: HTMLElement[];
}

export class Rules {
  readonly element: HTMLElement;
  readonly #table: HTMLTableElement;
  readonly #rows: Rows<RulePicture, RuleRow>;
  readonly #span: Element | undefined;
  /** Where there is little room, the style sheet shows the first few until all are asked for. */
  readonly #all = h("button", { type: "button", class: "quiet all-rules", onclick: () => this.element.classList.add("whole") });

  constructor(private readonly live: Live) {
    this.#table = table("Rules with what they admitted and refused", ["Rule", "Range", ...COLUMNS.map(({ name }) => `#${name}`)]);
    this.#table.id = "rules";
    this.#span = this.#table.querySelectorAll("thead th")[1];
    this.#rows = new Rows(this.#table, (rule) => rule.rule, make, (row, rule) => this.#update(row, rule));
    this.element = h(
      "section",
      { class: "panel rules", "aria-labelledby": "rules-title" },
      h("header", {}, h("h2", { id: "rules-title" }, "Rules")),
      this.#table,
      this.#all,
    );
  }

  show(rules: RulePicture[]): void {
    if (this.#span) say(this.#span, `Last ${RANGE_WORDS[this.live.range]}`);
    const totals = { admitted: 0, refused: 0, degraded: 0 };
    for (const rule of rules) {
      const { allowed, refused } = decided(rule);
      totals.admitted += allowed;
      totals.refused += refused;
      totals.degraded += rule.degraded;
    }
    COLUMNS.forEach(({ hides }, place) => this.#table.classList.toggle(`no-${place + 3}`, totals[hides] === 0));
    this.#rows.show(rules);
    this.#all.hidden = rules.length <= FEW;
    say(this.#all, `Show all ${rules.length} rules`);
  }

  #update(row: RuleRow, rule: RulePicture): void {
    say(row.limit, describe(rule));
    row.element.classList.toggle("shadow", rule.shadow);
    row.link.href = address({ view: "rule", rule: rule.rule, range: this.live.range });
    const { allowed, refused } = this.live.timeline.of(rule.rule, rule.shadow);
    row.spark.show(condense(allowed, SPARK_POINTS), condense(refused, SPARK_POINTS));
    const now = this.live.history.latest?.rules.get(rule.rule) ?? { allowed: 0, refused: 0 };
    const total = decided(rule);
    const values = [format.rate(now.allowed), format.rate(now.refused), format.count(total.allowed), format.count(total.refused), format.count(rule.degraded)];
    row.cells.forEach((cell, place) => {
      say(cell, values[place] ?? "");
      cell.classList.toggle("zero", values[place] === "0");
    });
    row.cells[3]?.classList.toggle("coral", total.refused > 0 && !rule.shadow);
  }
}

/** What a rule decided since the start; of a shadow rule, what it would have decided. */
function decided(rule: RulePicture): { allowed: number; refused: number } {
  return rule.shadow
    ? { allowed: rule.shadow_allowed, refused: rule.shadow_refused }
    : { allowed: rule.allowed, refused: rule.refused };
}

function make(rule: RulePicture): RuleRow {
  const word = (name: string) => (rule.shadow ? name.replace("admitted", "would admit").replace("refused", "would refuse") : name);
  const cells = COLUMNS.map(({ name }) => h("td", { class: "number", "data-label": word(name), title: word(name) }));
  const [spark, limit] = [new Spark(), h("span", { class: "limit" })];
  const link = h("a", { class: "name" }, nameOf(rule.rule));
  const element = rowOf(h("th", { scope: "row" }, link, limit), h("td", { class: "sparks" }, spark.element), ...cells);
  return { element, spark, link, limit, cells };
}
