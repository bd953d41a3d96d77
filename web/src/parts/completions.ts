/** The list of what can be typed here: arrows choose, Enter or Tab takes, Escape closes. */

import { h } from "../dom.ts";
import type { Completion } from "../schema.ts";
import { announce } from "./notice.ts";

const ID = "completions";

export class Completions {
  readonly element = h("ul", { class: "completions", id: ID, role: "listbox", "aria-label": "Completions", hidden: true });
  #shown: Completion[] = [];
  #chosen = 0;

  constructor(
    private readonly field: HTMLTextAreaElement,
    private readonly onTake: (completion: Completion) => void,
  ) {
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-haspopup", "listbox");
    // A click must not take the focus from the field.
    this.element.addEventListener("pointerdown", (event) => event.preventDefault());
    this.element.addEventListener("click", (event) => this.#click(event));
    field.addEventListener("blur", () => this.close());
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  /** Shows these at a place inside the editor, in pixels. */
  show(completions: Completion[], left: number, top: number): void {
    if (completions.length === 0) return this.close();
    this.#shown = completions;
    const options = completions.map(({ name, about }, number) =>
      h("li", { role: "option", id: `completion-${number}` }, h("code", {}, name), about ? h("span", {}, about) : null),
    );
    this.element.replaceChildren(...options);
    this.element.hidden = false;
    this.field.setAttribute("aria-controls", ID);
    this.#choose(0);
    const room = (this.element.parentElement?.clientWidth ?? 0) - this.element.offsetWidth;
    this.element.style.setProperty("left", `${Math.max(0, Math.min(left, room))}px`);
    this.element.style.setProperty("top", `${top}px`);
    announce(`${completions.length === 1 ? "1 completion" : `${completions.length} completions`}: ${completions[0]?.name ?? ""}`);
  }

  close(): void {
    this.element.hidden = true;
    this.field.removeAttribute("aria-controls");
    this.field.removeAttribute("aria-activedescendant");
  }

  /** Handles a key while the list is open; says whether it was one of the list's. */
  press(key: string): boolean {
    if (!this.isOpen) return false;
    const count = this.#shown.length;
    if (key === "Escape") this.close();
    else if (key === "ArrowDown") this.#choose((this.#chosen + 1) % count);
    else if (key === "ArrowUp") this.#choose((this.#chosen + count - 1) % count);
    else if (key === "Enter" || key === "Tab") this.#take(this.#chosen);
    else return false;
    return true;
  }

  #choose(number: number): void {
    this.#chosen = number;
    [...this.element.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === number)));
    this.field.setAttribute("aria-activedescendant", `completion-${number}`);
    const option = this.element.children[number];
    if (!(option instanceof HTMLElement)) return;
    // Only the list scrolls, not the page.
    const { offsetTop, offsetHeight } = option;
    if (offsetTop < this.element.scrollTop) this.element.scrollTop = offsetTop;
    const over = offsetTop + offsetHeight - this.element.clientHeight;
    if (over > this.element.scrollTop) this.element.scrollTop = over;
  }

  #click({ target }: Event): void {
    const option = target instanceof Element ? target.closest("li") : null;
    const number = option ? [...this.element.children].indexOf(option) : -1;
    if (number >= 0) this.#take(number);
  }

  #take(number: number): void {
    const completion = this.#shown[number];
    this.close();
    if (completion) this.onTake(completion);
  }
}
