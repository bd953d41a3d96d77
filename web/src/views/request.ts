/** One request: what every rule says of it now, and what can be done for its keys. */

import { INSPECT, explainKey, giveBack } from "../api.ts";
import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { aboutKey } from "../keys.ts";
import type { Live } from "../live.ts";
import { copied } from "../parts/copied.ts";
import { notify } from "../parts/notice.ts";
import { askReason } from "../parts/reason.ts";
import { table } from "../parts/table.ts";
import { curl, isSame, words, type CheckRequest } from "../request.ts";
import { lacking, may } from "../rights.ts";
import { address, DEFAULT_RANGE, type Route } from "../route.ts";
import { nameOf } from "../rulewords.ts";
import { token } from "../session.ts";
import type { Explained, ExplainedRule } from "../types.ts";
import { Refusals } from "./refusals.ts";
import { explainFailure, type View } from "./view.ts";

/** Pictures, a second each, after which the rules are asked again. */
const REFRESH = 5;

export class RequestView implements View {
  readonly element: HTMLElement;
  readonly #name = h("h2");
  readonly #decision = h("p", { class: "decision", id: "decision", role: "status" });
  readonly #hints = h("p", { class: "hint" });
  readonly #rules = h("div");
  readonly #command = h("div");
  readonly #refusals = new Refusals("key-refusals", "Recent refusals of this request", "It has not been refused lately. What each rule would say now is above.", Infinity);
  #request: CheckRequest = {};
  #asked = 0;
  #pictures = 0;

  constructor(
    private readonly live: Live,
    private readonly onUnauthorized: () => void,
  ) {
    this.element = h(
      "div",
      { class: "column" },
      h("section", { class: "panel request", "aria-label": "Request" }, h("header", {}, this.#name), this.#decision, this.#hints, this.#rules, this.#command),
      this.#refusals.element,
    );
  }

  get title(): string {
    return words(this.#request);
  }

  open(route: Route): void {
    if (route.view !== "request") return;
    this.#request = route.request;
    say(this.#name, words(route.request));
    say(this.#decision, "");
    this.#rules.replaceChildren();
    this.#command.replaceChildren(copied(curl(route.request, location.origin + INSPECT, token() !== null), "Copy as curl"));
    this.#pictures = 0;
    void this.#ask();
    this.show();
  }

  show(): void {
    const { picture } = this.live;
    if (!picture) return;
    const own = picture.recent_refusals.filter(({ request }) => request !== null && isSame(aboutKey(request), this.#request));
    this.#refusals.show(own, picture.time_us);
    this.#pictures += 1;
    if (this.#pictures % REFRESH === 0) void this.#ask();
    this.#showHints();
  }

  /** A bare key is not an attribute: the rules that go by one are asked with it. */
  #showHints(): void {
    const { key, attributes } = this.#request;
    const names = new Set(this.live.picture?.rules.flatMap((rule) => (rule.key?.length === 1 ? rule.key : [])));
    const isBare = key !== undefined && attributes === undefined;
    const text = isBare && names.size > 0 ? [...names].join("\n") : "";
    if (this.#hints.dataset["names"] === `${key} ${text}`) return;
    this.#hints.dataset["names"] = `${key} ${text}`;
    const links = [...names].flatMap((name) => {
      const request = { attributes: { [name]: key ?? "" } };
      return [" ", h("a", { href: address({ view: "request", request }) }, words(request))];
    });
    this.#hints.replaceChildren(...(text ? ["This is the key of rules without key attributes. As an attribute:", ...links] : []));
  }

  async #ask(): Promise<void> {
    if (!may("manage")) return say(this.#decision, lacking("What the rules say now", "manage"));
    const [request, number] = [this.#request, (this.#asked += 1)];
    try {
      const explained = await explainKey(request);
      // Another one was opened, or asked, meanwhile. Buttons that are in use stay where they are.
      if (number !== this.#asked) return;
      this.#showRules(explained);
    } catch (error) {
      if (number !== this.#asked) return;
      say(this.#decision, explainFailure(error, this.onUnauthorized));
      this.#decision.dataset["kind"] = "bad";
    }
  }

  #showRules({ decision, rules }: Explained): void {
    this.#decision.dataset["kind"] = decision.allowed ? "good" : "bad";
    const wait = decision.retry_after_us === null ? "" : `, retry after ${format.duration(decision.retry_after_us)}`;
    const by = `by ${nameOf(decision.rule)}`;
    say(this.#decision, decision.allowed ? `Would be admitted now (${by}).` : `Refused now ${by}${wait}.`);
    const body = table("What every rule says now", ["Rule", "Says", "#remaining", "#reset after", ""]);
    body.id = "says";
    body.classList.add("cards");
    body.append(h("tbody", {}, ...rules.map((rule) => this.#row(rule))));
    // The focus stays on the button that it was on.
    const focused = document.activeElement?.id;
    this.#rules.replaceChildren(body);
    if (focused) document.getElementById(focused)?.focus();
  }

  #row(rule: ExplainedRule): HTMLElement {
    const { answer } = rule;
    const refuses = rule.says === "refuses";
    // A shadow rule decides nothing.
    const would = answer && rule.shadow ? (refuses ? "would refuse" : "would admit") : null;
    const said = would ?? SAYS[rule.says] ?? rule.says;
    const number = (label: string, text: string) => h("td", { class: "number", "data-label": label }, text);
    const remaining = answer && answer.limit !== null ? `${format.count(answer.remaining ?? 0)} of ${format.count(answer.limit)}` : "";
    const reset = answer?.reset_after_us ? format.duration(answer.reset_after_us) : "";
    const debt = rule.debt_us ? ` · debt is paid in ${format.duration(rule.debt_us)}` : "";
    const resets = rule.resets_on ? ` · resets on ${rule.resets_on}` : "";
    const link = h("a", { class: "name", href: address({ view: "rule", rule: rule.rule, range: DEFAULT_RANGE }) }, nameOf(rule.rule));
    const limit = h("span", { class: "limit" }, [rule.limit, rule.shadow ? "shadow" : null].filter(Boolean).join(" · "));
    const button = (how: "reset" | "refund", name: string) => {
      const label = h("span", { class: "unseen" }, ` ${rule.rule}`);
      return h("button", { type: "button", class: "quiet", id: `${how} ${rule.rule}`, onclick: () => void this.#giveBack(how, rule) }, name, label);
    };
    return h(
      "tr",
      { class: answer ? null : "skipped" },
      h("th", { scope: "row" }, link, limit),
      h("td", { class: refuses && !rule.shadow ? "coral" : null }, `${said}${debt}${resets}`),
      number("remaining", remaining),
      number("reset after", reset),
      h("td", { class: "actions", "data-needs": "manage" }, ...(answer ? [button("reset", "Reset"), button("refund", "Refund")] : [])),
    );
  }

  async #giveBack(how: "reset" | "refund", { rule }: ExplainedRule): Promise<void> {
    const title = how === "reset" ? `Reset what ${words(this.#request)} has used of ${rule}` : `Refund units of ${rule} to ${words(this.#request)}`;
    const given = await askReason(title, how === "reset" ? "Reset" : "Refund", how === "refund");
    if (!given) return;
    const { amounts: _, ...request } = this.#request;
    // A limit that comes with the request is no rule of the policy.
    const asked = { ...request, ...(request.limit ? {} : { rule }), cost: given.units };
    try {
      const answer = await giveBack(how, asked, given.reason);
      const remaining = answer.remaining === null ? "" : `, ${format.count(answer.remaining)} remaining`;
      notify(`${how === "reset" ? "Reset" : "Refunded"} ${rule}${remaining}`);
    } catch (error) {
      notify(explainFailure(error, this.onUnauthorized), "bad");
    }
    await this.#ask();
  }
}

const SAYS: Record<string, string> = {
  allows: "admits",
  refuses: "refuses",
  blocked: "refuses every request",
  unlimited: "no limit for this request",
  unsatisfiable: "refuses: the cost is above the limit",
  "no-key": "skipped: a key attribute is missing",
  "missing-attribute": "error: a key attribute is missing",
  "not-asked": "not asked: a list or another rule decides",
  "does-not-match": "does not match",
};
