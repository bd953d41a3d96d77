/** The policy: what is in force, an editor, and what is wrong with what is in it. */

import { Failure, applyPolicy, readPolicy, validatePolicy } from "../api.ts";
import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { notify } from "../parts/notice.ts";
import type { Mistake, Picture, PolicyDocument } from "../types.ts";

export class PolicyView {
  readonly element: HTMLElement;
  readonly #state = h("p", { class: "policy-state", id: "policy-state" });
  readonly #broken = h("pre", { class: "mistakes-of-file", hidden: true });
  readonly #numbers = h("pre", { class: "line-numbers", "aria-hidden": "true" });
  readonly #text: HTMLTextAreaElement;
  readonly #format: HTMLSelectElement;
  readonly #validate = h("button", { type: "button", id: "validate" }, "Validate");
  readonly #apply = h("button", { type: "button", id: "apply", class: "primary" }, "Apply");
  readonly #again = h("button", { type: "button", class: "quiet", id: "reload-policy" }, "Start over");
  readonly #hint = h("span", { class: "hint" });
  readonly #verdict = h("div", { class: "verdict", id: "policy-verdict", role: "status" });
  /** What the server has, as the editor shows it: its line ends may be others. */
  #known: string | null = null;
  /** Which policy that is, and which is in force: by number and time, as another process counts anew. */
  #loaded = "";
  #inForce = "";

  constructor(private readonly onUnauthorized: () => void) {
    this.#text = h("textarea", {
      id: "policy-text",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      wrap: "off",
      rows: 16,
      "aria-describedby": "policy-verdict",
    });
    this.#format = h("select", { id: "policy-format" }, h("option", { value: "toml" }, "TOML"), h("option", { value: "yaml" }, "YAML"));
    this.element = h(
      "section",
      { class: "panel policy", "aria-labelledby": "policy-title" },
      h("header", {}, h("h2", { id: "policy-title" }, "Policy"), this.#state),
      this.#broken,
      h("label", { for: "policy-text", class: "unseen" }, "The policy's text"),
      h("div", { class: "editor" }, this.#numbers, this.#text),
      h(
        "div",
        { class: "controls" },
        h("label", { class: "field inline" }, "Format", this.#format),
        this.#validate,
        this.#apply,
        this.#again,
        this.#hint,
      ),
      this.#verdict,
    );
    this.#text.addEventListener("input", () => this.#changed());
    this.#text.addEventListener("scroll", () => (this.#numbers.scrollTop = this.#text.scrollTop));
    this.#text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void this.#check();
    });
    this.#validate.addEventListener("click", () => void this.#check());
    this.#apply.addEventListener("click", () => void this.#put());
    this.#again.addEventListener("click", () => void this.load());
  }

  /** Takes the text from the server; what was typed is given up. */
  async load(): Promise<void> {
    this.#loaded = this.#inForce;
    try {
      this.#take(await readPolicy());
    } catch (error) {
      this.#fail(error);
    }
  }

  /** The same, unless something has been typed meanwhile. */
  async #follow(): Promise<void> {
    this.#loaded = this.#inForce;
    try {
      const policy = await readPolicy();
      if (this.#isUntouched) this.#take(policy);
    } catch (error) {
      // Without an answer it is asked for again; without the token, nobody is to be asked again and again.
      if (!(error instanceof Failure && error.isUnauthorized)) this.#loaded = "";
      this.#fail(error);
    }
  }

  #take({ text, format }: PolicyDocument): void {
    const before = this.#text.value;
    this.#text.value = text;
    this.#format.value = format;
    this.#known = this.#text.value;
    if (this.#known !== before) this.#verdict.replaceChildren();
    this.#changed();
  }

  get #isUntouched(): boolean {
    return this.#known === null ? this.#text.value === "" : this.#text.value === this.#known;
  }

  show({ policy, time_us }: Picture): void {
    const where = policy.file ? `from ${policy.file}` : policy.generation > 1 ? "put by hand" : "built in";
    const since = format.ago(time_us - policy.since_us);
    say(this.#state, `No. ${policy.generation} since the start, ${where}, in force since ${since}`.replace("since now", "just now"));
    this.#broken.hidden = policy.mistakes === null;
    say(this.#broken, policy.mistakes ? `The file says something else now, which is not in force:\n\n${policy.mistakes}` : "");
    // The server follows a file: what is put here would not last.
    this.#apply.disabled = policy.file !== null;
    this.#inForce = `${policy.generation} ${policy.since_us}`;
    if (this.#inForce !== this.#loaded && this.#isUntouched) void this.#follow();
    const others = this.#inForce === this.#loaded ? "" : "Meanwhile another policy is in force: Start over shows it. ";
    say(this.#hint, others + (policy.file ? "The server follows its file: change it there, and it is applied by itself." : "Ctrl+Enter validates."));
  }

  #changed(): void {
    const count = this.#text.value.split("\n").length;
    say(this.#numbers, Array.from({ length: count }, (_, line) => String(line + 1)).join("\n"));
    this.#again.disabled = this.#isUntouched;
  }

  get #chosen(): PolicyDocument["format"] {
    return this.#format.value === "yaml" ? "yaml" : "toml";
  }

  async #check(): Promise<void> {
    try {
      const { mistakes } = await validatePolicy(this.#text.value, this.#chosen);
      this.#tell(mistakes, "No mistakes. Apply puts it in force; what was used stays used.");
    } catch (error) {
      this.#fail(error);
    }
  }

  async #put(): Promise<void> {
    const [text, format] = [this.#text.value, this.#chosen];
    try {
      const { mistakes } = await validatePolicy(text, format);
      if (mistakes.length > 0) {
        this.#tell(mistakes, "");
        return;
      }
      await applyPolicy(text, format);
      this.#known = text;
      this.#tell([], "In force now.");
      this.#changed();
      notify("The policy is in force.");
    } catch (error) {
      this.#fail(error);
    }
  }

  #tell(mistakes: Mistake[], good: string): void {
    this.#verdict.dataset["kind"] = mistakes.length > 0 ? "bad" : "good";
    if (mistakes.length === 0) {
      this.#verdict.replaceChildren(h("p", {}, good));
      return;
    }
    const many = mistakes.length === 1 ? "One mistake" : `${mistakes.length} mistakes`;
    this.#verdict.replaceChildren(h("p", {}, `${many}:`), h("ol", {}, ...mistakes.map((mistake) => this.#mistake(mistake))));
  }

  #mistake(mistake: Mistake): HTMLElement {
    const place =
      mistake.line === null
        ? null
        : h(
            "button",
            { type: "button", class: "quiet place", onclick: () => this.#go(mistake) },
            `Line ${mistake.line}, column ${mistake.column ?? 1}`,
          );
    const help = mistake.help ? h("p", { class: "help" }, mistake.help) : null;
    return h("li", {}, h("p", {}, place, mistake.message), excerpt(mistake), help);
  }

  /** Puts the cursor where the mistake is. */
  #go({ line, column }: Mistake): void {
    const before = this.#text.value.split("\n").slice(0, (line ?? 1) - 1);
    const at = before.reduce((sum, text) => sum + text.length + 1, 0) + (column ?? 1) - 1;
    this.#text.focus();
    this.#text.setSelectionRange(at, at);
    const height = this.#text.scrollHeight / Math.max(1, this.#text.value.split("\n").length);
    this.#text.scrollTop = Math.max(0, ((line ?? 1) - 4) * height);
  }

  #fail(error: unknown): void {
    if (error instanceof Failure && error.isUnauthorized) this.onUnauthorized();
    this.#verdict.dataset["kind"] = "bad";
    this.#verdict.replaceChildren(h("p", {}, error instanceof Error ? error.message : "Something went wrong."));
  }
}

/** The lines of the policy that it is about, as `tidegate validate` shows them. */
function excerpt({ text }: Mistake): HTMLElement | null {
  const lines = text.split("\n").filter((line) => /^\s*\d*\s*\|/.test(line));
  const isBare = (line = "") => /^\s*\|\s*$/.test(line);
  while (lines.length > 0 && isBare(lines.at(-1))) lines.pop();
  while (lines.length > 0 && isBare(lines[0])) lines.shift();
  return lines.length > 0 ? h("pre", {}, lines.join("\n")) : null;
}
