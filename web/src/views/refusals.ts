/** Who was refused lately, and why: each can be explained, and its key reset. */

import { Failure, explainKey, resetKey } from "../api.ts";
import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { notify } from "../parts/notice.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import type { Explained, ExplainedRule, Picture, Question, RefusalPicture } from "../types.ts";

/** Refusals that are shown until more are asked for. */
const FEW = 12;

interface RefusalRow {
  element: HTMLTableSectionElement;
  time: HTMLTimeElement;
  times: HTMLElement;
  cost: HTMLElement;
  wait: HTMLElement;
  more: HTMLTableRowElement;
  explain: HTMLButtonElement;
  reset: HTMLButtonElement;
  question: Question | null;
}

export class Refusals {
  readonly element: HTMLElement;
  readonly #rows: Rows<RefusalPicture, RefusalRow>;
  readonly #none = h("p", { class: "none" }, "No request has been refused yet.");
  readonly #held = h("span", { class: "held", hidden: true }, "held while you are here");
  readonly #all = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showAll() });
  #now = 0;
  #picture: Picture | null = null;
  #most = FEW;

  constructor(private readonly onUnauthorized: () => void) {
    const body = table("Refusals, the latest first", ["When", "Rule", "Key", "#times", "#cost", "#wait", ""]);
    body.id = "recent-refusals";
    this.#rows = new Rows(
      body,
      (refusal) => `${refusal.rule}\n${refusal.key}`,
      (refusal) => this.#make(refusal),
      (row, refusal) => this.#update(row, refusal),
    );
    this.element = h(
      "section",
      { class: "panel refusals empty", "aria-labelledby": "refusals-title" },
      h("header", {}, h("h2", { id: "refusals-title" }, "Refused lately"), this.#held),
      this.#none,
      body,
      this.#all,
    );
    // What was held shows up once the pointer and the focus have left.
    for (const leaving of ["pointerleave", "focusout"]) {
      this.element.addEventListener(leaving, () => setTimeout(() => this.#refresh()));
    }
  }

  show(picture: Picture): void {
    this.#picture = picture;
    this.#refresh();
  }

  /** Nothing moves under a pointer or a focus. */
  get #isHeld(): boolean {
    const pointed = matchMedia("(hover: hover)").matches && this.element.matches(":hover");
    return pointed || this.element.contains(document.activeElement);
  }

  #refresh(): void {
    if (!this.#picture) return;
    const all = this.#picture.recent_refusals;
    this.#now = this.#picture.time_us;
    const held = this.#isHeld && this.#none.hidden;
    this.#held.hidden = !held;
    if (held) return;
    this.#none.hidden = all.length > 0;
    this.element.classList.toggle("empty", all.length === 0);
    this.#rows.show(all.slice(0, this.#most));
    this.#all.hidden = all.length <= this.#most;
    say(this.#all, `Show all ${all.length}`);
  }

  #showAll(): void {
    this.#most = Infinity;
    this.#all.blur();
    this.#refresh();
  }

  #make(refusal: RefusalPicture): RefusalRow {
    const number = (label: string) => h("td", { class: "number", "data-label": label });
    const [times, cost, wait] = [number("times"), number("cost"), number("wait")];
    const time = h("time");
    const more = h("tr", { class: "more", hidden: true });
    const [explain, reset] = [this.#button("Explain", refusal), this.#button("Reset", refusal)];
    const element = rowOf(
      h("td", { class: "when" }, time),
      h("td", { class: "rule" }, refusal.rule),
      h("th", { scope: "row", class: "key" }, refusal.key),
      times,
      cost,
      wait,
      h("td", { class: "actions" }, explain, reset),
    );
    element.append(more);
    const row: RefusalRow = { element, time, times, cost, wait, more, explain, reset, question: refusal.question };
    explain.setAttribute("aria-expanded", "false");
    explain.addEventListener("click", () => void this.#explain(row));
    reset.addEventListener("click", () => void this.#reset(row, refusal.key));
    return row;
  }

  #button(name: string, { key }: RefusalPicture): HTMLButtonElement {
    return h("button", { type: "button", class: "quiet" }, name, h("span", { class: "unseen" }, ` ${key}`));
  }

  #update(row: RefusalRow, refusal: RefusalPicture): void {
    row.question = refusal.question;
    row.explain.disabled = row.reset.disabled = refusal.question === null;
    row.explain.title = row.reset.title = refusal.question ? "" : UNNAMED;
    say(row.time, format.ago(this.#now - refusal.at_us));
    row.time.dateTime = new Date(refusal.at_us / 1_000).toISOString();
    row.time.title = format.clock(refusal.at_us);
    say(row.times, format.count(refusal.times));
    say(row.cost, format.count(refusal.cost));
    say(row.wait, refusal.retry_after_us === null ? "for good" : format.duration(refusal.retry_after_us));
  }

  async #explain(row: RefusalRow): Promise<void> {
    if (!row.question) return;
    const open = row.more.hidden;
    row.explain.setAttribute("aria-expanded", String(open));
    row.more.hidden = !open;
    if (!open) return;
    const cell = h("td", { colspan: 7 });
    // What every rule says, not only the one that refused.
    const { rule: _, ...all } = row.question;
    row.more.replaceChildren(cell);
    try {
      cell.append(explanation(await explainKey(all)));
    } catch (error) {
      cell.append(h("p", { class: "problem" }, this.#words(error)));
    }
  }

  async #reset(row: RefusalRow, key: string): Promise<void> {
    if (!row.question) return;
    try {
      const answer = await resetKey({ ...row.question, cost: 1 });
      const left = answer.remaining === null ? "" : `: ${format.count(answer.remaining)} can pass at once`;
      notify(`${key} is as new${left}`);
    } catch (error) {
      notify(this.#words(error), "bad");
    }
  }

  #words(error: unknown): string {
    if (error instanceof Failure && error.isUnauthorized) this.onUnauthorized();
    return error instanceof Error ? error.message : "Something went wrong.";
  }
}

/** What every rule says now. */
function explanation({ decision, rules }: Explained): HTMLElement {
  const asked = rules.filter((rule) => rule.says !== "not-asked");
  const now = decision.allowed
    ? "It would pass now."
    : decision.retry_after_us === null
      ? "Refused for good."
      : `Still refused, for another ${format.duration(decision.retry_after_us)}.`;
  return h("div", { class: "explanation" }, h("p", {}, now), h("ul", {}, ...asked.map(ruleWords)));
}

function ruleWords(rule: ExplainedRule): HTMLElement {
  const { answer } = rule;
  const numbers =
    answer && answer.limit !== null
      ? h(
          "span",
          { class: "numbers" },
          ` ${format.count(answer.remaining ?? 0)} of ${format.count(answer.limit)} left`,
          answer.reset_after_us ? `, all of it in ${format.duration(answer.reset_after_us)}` : "",
          rule.debt_us ? `; in debt, which is paid in ${format.duration(rule.debt_us)}` : "",
        )
      : null;
  return h(
    "li",
    { class: rule.binds ? "binds" : null },
    h("b", {}, rule.rule),
    ` ${SAYS[rule.says] ?? rule.says}`,
    rule.cost === undefined ? "" : ` a cost of ${rule.cost}`,
    rule.limit ? " by " : "",
    rule.limit ? h("code", {}, rule.limit) : null,
    numbers ? ":" : "",
    numbers,
  );
}

/** Why there is nothing to ask. */
const UNNAMED = "This request cannot be asked again: it came from Envoy's descriptor files, or is no text.";

const SAYS: Record<string, string> = {
  allows: "allows",
  refuses: "refuses",
  blocked: "lets nothing pass",
  unlimited: "sets no limit here",
  unsatisfiable: "can never let pass",
  "no-key": "does not apply: an attribute of its key is missing",
  "does-not-match": "does not apply",
};
