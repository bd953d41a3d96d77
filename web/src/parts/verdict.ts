/** What the server says of a policy: its errors with their places, or the rules that it changes. */

import { h } from "../dom.ts";
import type { PolicyError } from "../types.ts";

export class Verdict {
  readonly element = h("div", { class: "verdict", id: "policy-verdict", role: "status" });

  /** `onPlace` puts the cursor where an error is. */
  constructor(private readonly onPlace: (error: PolicyError) => void) {}

  clear(): void {
    this.element.replaceChildren();
  }

  good(text: string, changes: string[] = []): void {
    this.element.dataset["kind"] = "good";
    this.element.replaceChildren(h("p", {}, text), ...changed(changes));
  }

  bad(text: string): void {
    this.element.dataset["kind"] = "bad";
    this.element.replaceChildren(h("p", {}, text));
  }

  errors(errors: PolicyError[]): void {
    this.bad(errors.length === 1 ? "1 error:" : `${errors.length} errors:`);
    this.element.append(h("ol", {}, ...errors.map((error) => this.#error(error))));
  }

  #error(error: PolicyError): HTMLElement {
    const words = `Line ${error.line}, column ${error.column ?? 1}`;
    const place =
      error.line === null ? null : h("button", { type: "button", class: "quiet place", onclick: () => this.onPlace(error) }, words);
    const help = error.help ? h("p", { class: "help" }, error.help) : null;
    return h("li", {}, h("p", {}, place, error.message), excerpt(error), help);
  }
}

/** A list of the rules that are others than before. */
export function changed(changes: string[]): HTMLElement[] {
  return changes.length > 0 ? [h("ul", { class: "changes" }, ...changes.map((change) => h("li", {}, change)))] : [];
}

/** The lines of the policy that it is about, as `tidegate validate` shows them. */
function excerpt({ text }: PolicyError): HTMLElement | null {
  const lines = text.split("\n").filter((line) => /^\s*\d*\s*\|/.test(line));
  const isBare = (line = "") => /^\s*\|\s*$/.test(line);
  while (lines.length > 0 && isBare(lines.at(-1))) lines.pop();
  while (lines.length > 0 && isBare(lines[0])) lines.shift();
  return lines.length > 0 ? h("pre", {}, lines.join("\n")) : null;
}
