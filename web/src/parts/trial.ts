/** What a policy would have refused of the server's last requests, beside the active one. */

import { h } from "../dom.ts";
import * as format from "../format.ts";
import { address } from "../route.ts";
import { nameOf } from "../rulewords.ts";
import type { Trial, TrialKey } from "../types.ts";
import { table } from "./table.ts";

export class TrialReport {
  readonly element = h("section", { class: "trial", id: "trial", "aria-label": "What this policy would refuse", hidden: true });

  clear(): void {
    this.element.hidden = true;
  }

  show(trial: Trial): void {
    this.element.hidden = false;
    const heading = h("h3", {}, "What this would refuse");
    if (trial.requests === 0) {
      const none = "The server has decided no request yet that both policies could decide. Send some requests, then try again.";
      this.element.replaceChildren(heading, h("p", { class: "none" }, none));
      return;
    }
    const rules = trial.rules.filter(({ refused_before, refused_after }) => refused_before + refused_after > 0);
    this.element.replaceChildren(
      heading,
      h("p", { class: "summary" }, summary(trial)),
      ...(trial.complete ? [] : [h("p", { class: "hint" }, "Some requests of this span are left out: they were too large to keep, or came too fast.")]),
      ...(trial.undecided_after > trial.undecided_before ? [h("p", { class: "problem" }, undecided(trial))] : []),
      ...(rules.length > 0 ? [ruleTable(rules)] : []),
      ...keys("Refused only by this policy", "newly-refused", trial.newly_refused),
      ...keys("Admitted only by this policy", "newly-admitted", trial.newly_admitted),
      h("p", { class: "hint" }, "Both policies decided the same requests in order, each from an empty state."),
    );
  }
}

function summary({ requests, seconds, refused_before, refused_after }: Trial): string {
  const span = `The last ${format.count(requests)} requests, of ${format.round(seconds * 1e6)}`;
  const share = (refused: number) => `${format.count(refused)} (${format.percent(refused, requests)})`;
  if (refused_before === refused_after) return `${span}: ${share(refused_after)} refused, as many as by the active policy.`;
  return `${span}: ${share(refused_after)} refused by this policy, ${share(refused_before)} by the active one.`;
}

function undecided({ undecided_after: count }: Trial): string {
  const words = count === 1 ? "1 request lacks" : `${format.count(count)} requests lack`;
  return `${words} an attribute that this policy needs, and would be an error: set missing = "skip" on the rule, or send the attribute.`;
}

function ruleTable(rules: Trial["rules"]): HTMLElement {
  const body = table("Refused requests by rule", ["Rule", "#active policy", "#this policy", "#change"]);
  body.id = "trial-rules";
  body.classList.add("cards");
  const rows = rules.map(({ rule, refused_before, refused_after }) => {
    const change = refused_after - refused_before;
    const number = (label: string, text: string, kind = "") => h("td", { class: `number ${kind}`, "data-label": label }, text);
    const sign = change > 0 ? "+" : change < 0 ? "−" : "";
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, nameOf(rule)),
      number("active policy", format.count(refused_before)),
      number("this policy", format.count(refused_after)),
      number("change", sign + format.count(Math.abs(change)), change > 0 ? "coral" : change < 0 ? "sea" : ""),
    );
  });
  body.append(h("tbody", {}, ...rows));
  return body;
}

function keys(title: string, id: string, found: TrialKey[]): HTMLElement[] {
  if (found.length === 0) return [];
  const body = table(title, ["Key", "Rule", "#requests"]);
  body.id = id;
  body.classList.add("cards");
  const rows = found.map(({ rule, key, requests, attributes }) => {
    const isKnown = Object.keys(attributes).length > 0;
    const name = isKnown ? h("a", { class: "key", href: address({ view: "request", request: { attributes } }) }, key) : h("span", { class: "key" }, key);
    const count = h("td", { class: "number", "data-label": "requests" }, format.count(requests));
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { "data-label": "rule" }, nameOf(rule)), count);
  });
  body.append(h("tbody", {}, ...rows));
  return [h("h4", {}, title), body];
}
