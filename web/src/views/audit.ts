/** The audit log: which identity changed what, from where, and why. */

import { readAudit } from "../api.ts";
import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { table } from "../parts/table.ts";
import { lacking, may } from "../rights.ts";
import type { AuditEntry } from "../types.ts";
import { explainFailure, type View } from "./view.ts";

export class AuditView implements View {
  readonly title = "Audit";
  readonly element: HTMLElement;
  readonly #body = h("tbody");
  readonly #none = h("p", { class: "none", hidden: true }, "No entry yet. A policy that is applied, a reset or a refund is listed here.");
  readonly #problem = h("p", { class: "problem", role: "status" });
  readonly #summary = h("p", { class: "hint" });

  constructor(private readonly onUnauthorized: () => void) {
    const body = table("Audit log, the latest first", ["Time", "Action", "Outcome", "Identity", "Peer", "Reason"]);
    body.id = "audit";
    body.classList.add("cards");
    body.append(this.#body);
    this.element = h(
      "section",
      { class: "panel audit", "aria-labelledby": "audit-title" },
      h(
        "header",
        {},
        h("h2", { id: "audit-title" }, "Audit"),
        this.#summary,
        h("button", { type: "button", class: "quiet", onclick: () => this.open() }, "Refresh"),
      ),
      this.#problem,
      this.#none,
      body,
    );
  }

  open(): void {
    if (may("admin")) void this.#load();
    else say(this.#problem, lacking("The audit log", "admin"));
  }

  async #load(): Promise<void> {
    try {
      const entries = await readAudit();
      say(this.#summary, `${entries.length === 1 ? "1 entry" : `${entries.length} entries`} since the start, at most 1,000; --audit FILE keeps all.`);
      say(this.#problem, "");
      this.element.classList.toggle("empty", entries.length === 0);
      this.#none.hidden = entries.length > 0;
      this.#body.replaceChildren(...entries.map(row));
    } catch (error) {
      say(this.#problem, explainFailure(error, this.onUnauthorized));
    }
  }
}

function row({ time, peer, identity, action, outcome, reason }: AuditEntry): HTMLElement {
  const cell = (label: string, text: string, kind = "") => h("td", { "data-label": label, class: kind || null }, text);
  const when = format.moment(Date.parse(time) * 1_000);
  return h(
    "tr",
    {},
    h("td", { class: "when" }, h("time", { datetime: time }, when)),
    h("th", { scope: "row" }, action),
    cell("outcome", outcome, outcome === "refused" ? "coral" : ""),
    cell("identity", identity),
    cell("peer", peer ?? ""),
    cell("reason", reason ?? ""),
  );
}
