/** One rule: its limit and key, its rates over the range, its candidate, its refused keys. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Live } from "../live.ts";
import { table } from "../parts/table.ts";
import { address, type Route } from "../route.ts";
import { candidateOf, describe, nameOf } from "../rulewords.ts";
import { RANGE_WORDS, sum } from "../timeline.ts";
import type { RulePicture } from "../types.ts";
import { Flow } from "./flow.ts";
import { Latency } from "./latency.ts";
import { Limits } from "./limits.ts";
import { Refusals } from "./refusals.ts";
import { Top } from "./top.ts";
import type { View } from "./view.ts";

/** Refusals that are shown until more are asked for. */
const FEW = 20;

export class RuleView implements View {
  readonly element: HTMLElement;
  readonly #name = h("h2");
  readonly #about = h("p", { class: "hint" });
  readonly #decides: Flow;
  readonly #shadow: Flow;
  readonly #candidate = h("section", { class: "panel candidate", "aria-label": "Candidate", hidden: true });
  readonly #top = new Top("rule-top");
  readonly #refusals = new Refusals("rule-refusals", "Recent refusals of this rule", "It has refused no request lately: choose another rule on the overview to see its refusals.", FEW);
  readonly #latency: Latency;
  readonly #limits = new Limits();
  #rule = "";
  #compared = "";

  constructor(private readonly live: Live) {
    this.#decides = new Flow(live, "Requests");
    this.#shadow = new Flow(live, "Shadow: decides nothing", true);
    this.#latency = new Latency(live);
    this.element = h(
      "div",
      { class: "board" },
      h(
        "div",
        { class: "column" },
        h("section", { class: "panel", "aria-label": "Rule" }, h("header", {}, this.#name), this.#about),
        this.#decides.element,
        this.#shadow.element,
        this.#refusals.element,
      ),
      h("div", { class: "column" }, this.#limits.element, this.#candidate, this.#latency.element, this.#top.element),
    );
  }

  get title(): string {
    return nameOf(this.#rule);
  }

  open(route: Route): void {
    if (route.view !== "rule") return;
    this.#rule = route.rule;
    say(this.#name, `Rule ${nameOf(route.rule)}`);
    this.show();
  }

  show(): void {
    const { picture, history, timeline } = this.live;
    if (!picture) return;
    const rule = picture.rules.find(({ rule }) => rule === this.#rule);
    const isShadow = rule?.shadow ?? false;
    const missing = `Neither the policy nor the counters since the start have a rule ${this.#rule}. The overview lists those that there are.`;
    say(this.#about, rule ? `${describe(rule)}${degraded(rule)}` : missing);
    const flow = isShadow ? this.#shadow : this.#decides;
    this.#decides.element.hidden = isShadow;
    this.#shadow.element.hidden = !isShadow;
    const addressOf = (range: Live["range"]) => address({ view: "rule", rule: this.#rule, range });
    flow.show({ series: timeline.of(this.#rule, isShadow), now: history.latest?.rules.get(this.#rule), addressOf });
    const candidate = picture.rules.find(({ rule }) => rule === candidateOf(this.#rule));
    this.#candidate.hidden = !candidate || !rule;
    if (candidate && rule) this.#compare(rule, candidate);
    // A shadow rule decides no request, so none took its time.
    this.#latency.element.hidden = isShadow || !rule;
    if (rule) this.#latency.show({ p50: rule.latency.p50_us, p99: rule.latency.p99_us }, this.#rule);
    this.#limits.show(this.#rule, picture.policy);
    this.#top.show(picture, this.#rule);
    this.#refusals.show(picture.recent_refusals.filter(({ rule }) => rule === this.#rule), picture.time_us);
  }

  /** What the candidate would have decided, beside what the rule did. */
  #compare(rule: RulePicture, candidate: RulePicture): void {
    const { timeline, range } = this.live;
    const counts = [rule, candidate].map(({ rule, shadow }) => Object.values(timeline.of(rule, shadow)).map(sum));
    const compared = JSON.stringify([rule.rule, rule.limit, candidate.limit, range, counts]);
    // Links that are in use stay where they are.
    if (compared === this.#compared) return;
    this.#compared = compared;
    const row = (name: string, { rule, limit, shadow }: RulePicture) => {
      const { allowed, refused } = timeline.of(rule, shadow);
      const link = h("a", { href: address({ view: "rule", rule, range }) }, name);
      const number = (value: number) => h("td", { class: "number" }, format.count(value));
      return h("tr", {}, h("th", { scope: "row" }, link, h("code", { class: "limit" }, limit ?? "")), number(sum(allowed)), number(sum(refused)));
    };
    const body = table("The rule and its candidate", ["Limit", "#admitted", "#refused"]);
    body.append(h("tbody", {}, row("In force", rule), row("Candidate, would", candidate)));
    this.#candidate.replaceChildren(h("header", {}, h("h2", {}, "Candidate"), h("p", { class: "hint" }, `last ${RANGE_WORDS[range]}`)), body);
  }
}

function degraded(rule: RulePicture): string {
  return rule.degraded ? ` · ${format.count(rule.degraded)} decided by the failure mode` : "";
}
