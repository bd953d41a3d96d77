/** Tables whose rows stay where they are while their numbers change: focus and selection survive. */

import { h } from "../dom.ts";

export interface Row {
  element: HTMLTableSectionElement;
}

/** The rows of a table, by a key that tells them apart. */
export class Rows<T, R extends Row> {
  readonly #rows = new Map<string, R>();

  constructor(
    private readonly table: HTMLTableElement,
    private readonly keyOf: (item: T) => string,
    private readonly make: (item: T) => R,
    private readonly update: (row: R, item: T) => void,
  ) {}

  /** Shows these items, in this order. */
  show(items: T[]): void {
    const gone = new Set(this.#rows.keys());
    let before: Element | null = this.table.tHead;
    const shown = new Set<string>();
    for (const item of items) {
      let key = this.keyOf(item);
      // Two that look alike are two rows all the same.
      while (shown.has(key)) key += "\n";
      shown.add(key);
      gone.delete(key);
      let row = this.#rows.get(key);
      if (!row) {
        row = this.make(item);
        this.#rows.set(key, row);
      }
      this.update(row, item);
      const place: Element | null = before ? before.nextElementSibling : this.table.firstElementChild;
      if (place !== row.element) this.table.insertBefore(row.element, place);
      before = row.element;
    }
    for (const key of gone) {
      this.#rows.get(key)?.element.remove();
      this.#rows.delete(key);
    }
  }

  values(): IterableIterator<R> {
    return this.#rows.values();
  }
}

/** A table with its caption and headings; those that begin with `#` are of numbers. */
export function table(caption: string, headings: string[]): HTMLTableElement {
  const cells = headings.map((heading) => {
    const isNumber = heading.startsWith("#");
    const text = isNumber ? heading.slice(1) : heading;
    return h("th", { scope: "col", class: isNumber ? "number" : null }, text || h("span", { class: "unseen" }, "Actions"));
  });
  return h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, ...cells)));
}

/** A part of a table: one row, and room for more below it. */
export function rowOf(...cells: HTMLTableCellElement[]): HTMLTableSectionElement {
  return h("tbody", {}, h("tr", {}, ...cells));
}
