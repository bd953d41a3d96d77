/** Where the cursor is in a policy: below which names, and what is typed there so far. */

import type { Format } from "./syntax.ts";

export interface Place {
  /** The names from the top down to here; `[]` stands for an item of a list. */
  path: string[];
  kind: "header" | "key" | "value";
  /** What is typed of it, without its quote, and where that begins. */
  typed: string;
  from: number;
  quote: string;
}

/** The place at the end of a text; null where nothing can be completed, as in a comment. */
export function placeAt(text: string, format: Format): Place | null {
  const isFlow = format === "yaml" && /^\s*[{[]/.test(text);
  if (format === "toml") return new Reader(text, 0, "=").document();
  return isFlow ? new Reader(text, 0, ":").value([]) : inBlock(text);
}

/** Reads up to the end of the text: the place is where it ends. */
class Reader {
  constructor(
    private readonly text: string,
    private at: number,
    private readonly separator: "=" | ":",
  ) {}

  get #isEnd(): boolean {
    return this.at >= this.text.length;
  }

  /** Takes what the pattern matches here. */
  #take(pattern: RegExp): string {
    const sticky = new RegExp(pattern.source, "y");
    sticky.lastIndex = this.at;
    const found = sticky.exec(this.text)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  /** Takes space, ends of lines and whole comments; says whether the text ends in a comment. */
  #space(): boolean {
    for (;;) {
      this.#take(/\s+/);
      const comment = this.#take(/#[^\n]*/);
      if (!comment) return false;
      if (this.#isEnd) return true;
    }
  }

  /** A TOML document: headers, and pairs below them. */
  document(): Place | null {
    let path: string[] = [];
    while (!this.#isEnd) {
      if (this.#space()) return null;
      if (this.#take(/\[\[?/)) {
        const { names, place } = this.#names([], "header");
        if (place) return place;
        path = names;
        this.#take(/[^\n]*/);
      } else {
        const { place, isRead } = this.#pair(path);
        if (place) return place;
        // What cannot be read is left out, up to the end of its line.
        if (!isRead) this.#take(/[^\n]*\n?/);
      }
    }
    // After a whole pair there is nothing to add to its line.
    const isNewLine = this.text.slice(this.text.lastIndexOf("\n") + 1).trim() === "";
    return isNewLine ? { path, kind: "key", typed: "", from: this.at, quote: "" } : null;
  }

  /** Names with dots between them. */
  #names(path: string[], kind: "header" | "key"): { names: string[]; place: Place | null } {
    const names = [...path];
    for (;;) {
      this.#take(/[ \t]+/);
      const start = this.at;
      const quote = this.#take(/["']/);
      const from = this.at;
      const typed = this.#take(quote ? /[^"'\n]*/ : this.separator === ":" ? /[^\s:,\]}"'#]*/ : /[\w-]*/);
      if (this.#isEnd) return { names, place: { path: names, kind, typed, from, quote } };
      if (quote) this.#take(/["']/);
      if (this.at > start) names.push(typed);
      this.#take(/[ \t]+/);
      if (this.separator === ":" || !this.#take(/\./)) return { names, place: null };
    }
  }

  #pair(path: string[]): { place: Place | null; isRead: boolean } {
    const { names, place } = this.#names(path, "key");
    if (place) return { place, isRead: true };
    this.#take(/[ \t]+/);
    if (this.text[this.at] !== this.separator) return { place: null, isRead: this.#isEnd };
    this.at += 1;
    return { place: this.value(names), isRead: true };
  }

  /** A value; null if it ends before the text does, or is being commented on. */
  value(path: string[]): Place | null {
    this.#take(/[ \t]+/);
    if (this.#take(/\{/)) return this.#items("}", () => this.#pair(path).place, { path, kind: "key", quote: "" });
    if (this.#take(/\[/)) {
      const item = [...path, "[]"];
      return this.#items("]", () => this.value(item), { path: item, kind: "value", quote: "" });
    }
    if (this.#take(/"""[^]*?"""|'''[^]*?'''/)) return null;
    const quote = this.#take(/["']/);
    const from = this.at;
    const typed = this.#take(quote === '"' ? /(?:\\.|[^"\n])*/ : quote ? /[^'\n]*/ : /[^\s,\]}#]*/);
    if (this.#isEnd) return { path, kind: "value", typed, from, quote };
    if (quote) this.#take(/["']/);
    return null;
  }

  #items(close: string, item: () => Place | null, empty: Omit<Place, "typed" | "from">): Place | null {
    for (;;) {
      if (this.#space()) return null;
      if (this.#isEnd) return { ...empty, typed: "", from: this.at };
      if (this.text[this.at] === close) {
        this.at += 1;
        return null;
      }
      const before = this.at;
      const place = item();
      if (place) return place;
      if (this.#isEnd) return null;
      this.#space();
      this.#take(/,/);
      // What is no item is left out.
      if (this.at === before) this.at += 1;
    }
  }
}

interface Piece {
  column: number;
  name: string;
}

const KEY = /^("[^"]*"|'[^']*'|[^\s:#"'[\]{},-][^:#]*?)\s*:(?=\s|$)/;

/** The dashes and the key that a line of YAML begins with, and the column after them. */
function piecesOf(line: string): { pieces: Piece[]; rest: number } {
  const pieces: Piece[] = [];
  let column = /^ */.exec(line)?.[0].length ?? 0;
  for (let dash = /^- +|^-$/.exec(line.slice(column)); dash; dash = /^- +|^-$/.exec(line.slice(column))) {
    pieces.push({ column, name: "[]" });
    column += dash[0].length;
  }
  const key = KEY.exec(line.slice(column));
  if (!key) return { pieces, rest: column };
  pieces.push({ column, name: (key[1] ?? "").replace(/^["']|["']$/g, "") });
  return { pieces, rest: column + key[0].length };
}

/** YAML by its indentation. */
function inBlock(text: string): Place | null {
  const lines = text.split("\n");
  const line = lines.pop() ?? "";
  if (/(?:^|\s)#/.test(line)) return null;
  const { pieces, rest } = piecesOf(line);
  const isValue = pieces.length > 0 && pieces.at(-1)?.name !== "[]";
  const own = pieces.map(({ name }) => name);
  const path = [...above(lines, pieces[0]?.column ?? rest, pieces[0]?.name === "[]"), ...own];
  if (isValue) return new Reader(text, text.length - line.length + rest, ":").value(path);
  const from = text.length - line.length + rest;
  const quote = /^["']/.exec(line.slice(rest))?.[0] ?? "";
  if (line[rest] === "{" || line[rest] === "[") return new Reader(text, from, ":").value(path);
  // An item of a list may be a value as well as the first key of a table.
  const kind = own.at(-1) === "[]" ? "value" : "key";
  return { path, kind, typed: line.slice(rest + quote.length), from: from + quote.length, quote };
}

/** The names that the lines above give to what begins at this column. */
function above(lines: string[], column: number, isItem: boolean): string[] {
  const path: string[] = [];
  let [left, afterDash] = [column, isItem];
  for (let number = lines.length - 1; number >= 0 && (left > 0 || afterDash); number -= 1) {
    const line = lines[number] ?? "";
    if (/^\s*(?:#|$)/.test(line)) continue;
    for (const piece of piecesOf(line).pieces.reverse()) {
      const isParent = piece.column < left || (afterDash && piece.name !== "[]" && piece.column === left);
      if (!isParent) continue;
      path.unshift(piece.name);
      left = piece.column;
      afterDash = piece.name === "[]";
    }
  }
  return path;
}
