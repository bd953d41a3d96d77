/** A text field for policies: line numbers, colours behind the text, and completions from the policy's schema. */

import { h, say } from "../dom.ts";
import { placeAt } from "../place.ts";
import { complete, type Completion, type Schema } from "../schema.ts";
import { tokens, type Format } from "../syntax.ts";
import { Completions } from "./completions.ts";

/** Characters beyond which a text is shown without colours: each key would take too long. */
const MAX_COLOURED = 200_000;

export class Editor {
  readonly element: HTMLElement;
  readonly field = h("textarea", {
    id: "policy-text",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    wrap: "off",
    rows: 16,
    "aria-describedby": "policy-verdict policy-hint",
  });
  readonly #numbers = h("pre", { class: "line-numbers", "aria-hidden": "true" });
  readonly #layer = h("pre", { class: "layer", "aria-hidden": "true" });
  readonly #completions = new Completions(this.field, (completion) => this.#take(completion));
  #format: Format = "toml";
  #schema: Schema | null = null;

  constructor(private readonly onChange: () => void) {
    const text = h("div", { class: "text" }, this.#layer, this.field);
    this.element = h("div", { class: "editing" }, h("div", { class: "editor" }, this.#numbers, text), this.#completions.element);
    this.field.addEventListener("input", (event) => {
      this.#draw();
      onChange();
      // One types a word, or opens a header or a list: not a deletion, not a paste.
      const typed = event instanceof InputEvent && event.inputType === "insertText" ? event.data : null;
      if (typed && /^[\w["{.-]$/.test(typed)) this.#offer(false);
      else this.#completions.close();
    });
    this.field.addEventListener("scroll", () => this.#scroll());
    this.field.addEventListener("pointerdown", () => this.#completions.close());
    this.field.addEventListener("keydown", (event) => this.#press(event));
  }

  get value(): string {
    return this.field.value;
  }

  set value(text: string) {
    this.field.value = text;
    this.#completions.close();
    this.#draw();
  }

  set format(format: Format) {
    this.#format = format;
    this.#draw();
  }

  set schema(schema: Schema) {
    this.#schema = schema;
  }

  get schema(): Schema | null {
    return this.#schema;
  }

  /** Puts the cursor at a line and a column, both from 1. */
  go(line: number, column: number): void {
    const lines = this.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
    this.field.focus();
    this.field.setSelectionRange(at, at);
    this.field.scrollTop = Math.max(0, (line - 4) * (this.field.scrollHeight / lines.length));
  }

  #press(event: KeyboardEvent): void {
    if (event.isComposing) return;
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey;
    if (plain && this.#completions.press(event.key)) return event.preventDefault();
    if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      this.#offer(true);
    } else if (/^(Arrow|Home|End|Page)/.test(event.key)) this.#completions.close();
  }

  /** Shows what can stand where the cursor is; unasked, only where there is something left to type. */
  #offer(isAsked: boolean): void {
    const { selectionStart: at, selectionEnd, readOnly } = this.field;
    const before = this.value.slice(0, at);
    // Within a word there is nothing to complete.
    const isInWord = /^[\w-]/.test(this.value.slice(at));
    const place = readOnly || at !== selectionEnd || isInWord || before.length > MAX_COLOURED ? null : placeAt(before, this.#format);
    if (!place || !this.#schema) return this.#completions.close();
    const found = complete(this.#schema, place, this.#format).filter(({ name }) => isAsked || name !== place.typed);
    const [left, top] = this.#pixels(place.from, at);
    this.#completions.show(found, left, top);
  }

  #take(completion: Completion): void {
    const at = this.field.selectionStart;
    const place = placeAt(this.value.slice(0, at), this.#format);
    if (!place) return;
    // A quote that is there already is not written twice.
    const rest = this.value.slice(at);
    const text = place.quote && completion.text.endsWith(place.quote) && rest.startsWith(place.quote) ? completion.text.slice(0, -1) : completion.text;
    this.field.setSelectionRange(place.from, at);
    // So it can be undone as what is typed; a browser without it sets the text.
    if (!document.execCommand("insertText", false, text)) {
      this.field.setRangeText(text, place.from, at, "end");
      this.#draw();
      this.onChange();
    }
    if (/[=:] $/.test(text)) this.#offer(true);
  }

  /** Where a character is, and the line below the cursor, in pixels of the editor. */
  #pixels(from: number, at: number): [number, number] {
    const before = this.value.slice(0, from);
    const column = before.slice(before.lastIndexOf("\n") + 1).replaceAll("\t", "    ").length;
    const style = getComputedStyle(this.field);
    const probe = h("span", { class: "probe" }, "0".repeat(100));
    this.#layer.append(probe);
    const width = probe.getBoundingClientRect().width / 100;
    probe.remove();
    const line = this.value.slice(0, at).split("\n").length;
    const left = this.#numbers.offsetWidth + parseFloat(style.paddingLeft) + column * width - this.field.scrollLeft;
    return [left, parseFloat(style.paddingTop) + line * parseFloat(style.lineHeight) - this.field.scrollTop + 4];
  }

  #scroll(): void {
    this.#numbers.scrollTop = this.#layer.scrollTop = this.field.scrollTop;
    this.#layer.scrollLeft = this.field.scrollLeft;
    this.#completions.close();
  }

  #draw(): void {
    const text = this.value;
    const count = text.split("\n").length;
    say(this.#numbers, Array.from({ length: count }, (_, line) => String(line + 1)).join("\n"));
    const all = text.length > MAX_COLOURED ? [{ kind: null, text }] : tokens(text, this.#format);
    const parts = all.map(({ kind, text }) => (kind ? h("span", { class: `syntax-${kind}` }, text) : text));
    // An empty last line has a height, too.
    this.#layer.replaceChildren(...parts, "\n");
  }
}
