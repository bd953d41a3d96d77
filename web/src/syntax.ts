/** The parts of a policy's text that are coloured: TOML, YAML, and JSON, which is YAML. */

export type Format = "toml" | "yaml";

export type Kind = "comment" | "header" | "key" | "string" | "number" | "constant";

export interface Token {
  kind: Kind | null;
  text: string;
}

const QUOTED = String.raw`"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?`;
/** A part of a key of TOML. */
const NAME = String.raw`(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[\w-]+)`;
const LONG = String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)`;

const TOML = new RegExp(
  [
    String.raw`(?<comment>#[^\n]*)`,
    `(?<key>${NAME}(?=(?:[ \\t]*\\.[ \\t]*${NAME})*[ \\t]*=))`,
    `(?<string>${LONG}|${QUOTED})`,
    String.raw`(?<word>[\w+-][\w.:+-]*)`,
    String.raw`(?<open>[[{])|(?<close>[\]}])`,
  ].join("|"),
  "y",
);

const YAML = new RegExp(
  [
    String.raw`(?<comment>(?<![^\s])#[^\n]*)`,
    String.raw`(?<key>(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s#:,[\]{}"'&*!|>%@\`-][^\n:#,[\]{}]*)(?=[ \t]*:(?:\s|$)))`,
    `(?<string>${QUOTED})`,
    String.raw`(?<word>[^\s,:#[\]{}"'-][^\s,[\]{}]*)`,
  ].join("|"),
  "y",
);

const HEADER = /\[\[?[^\]\n]*\]{0,2}/y;
const CONSTANT = /^(?:true|false|null|~)$/;
const NUMBER = /^[+-]?\d[\d_.:+eExTZ-]*$/;

/** The text in pieces, all of it, in order. */
export function tokens(text: string, format: Format): Token[] {
  const found: Token[] = [];
  const pattern = format === "toml" ? TOML : YAML;
  const add = (kind: Token["kind"], part: string) => {
    const last = found.at(-1);
    if (last && last.kind === kind) last.text += part;
    else found.push({ kind, text: part });
  };
  /** How many brackets are open: a header is outside of all. */
  let depth = 0;
  let isLineStart = true;
  for (let at = 0; at < text.length; ) {
    const match: RegExpExecArray | null = nextOf(HEADER, text, at, format === "toml" && isLineStart && depth === 0) ?? nextOf(pattern, text, at, true);
    const part: string = match?.[0] || text.charAt(at);
    const groups = match?.groups ?? {};
    if (groups["open"]) depth += 1;
    if (groups["close"]) depth = Math.max(0, depth - 1);
    add(match ? kindOf(part, groups, match.groups === undefined) : null, part);
    isLineStart = part.endsWith("\n") || (isLineStart && /^[ \t]+$/.test(part));
    at += part.length;
  }
  return found;
}

function nextOf(pattern: RegExp, text: string, at: number, isWanted: boolean): RegExpExecArray | null {
  pattern.lastIndex = at;
  return isWanted ? pattern.exec(text) : null;
}

function kindOf(part: string, groups: Record<string, string | undefined>, isHeader: boolean): Token["kind"] {
  if (isHeader) return "header";
  if (groups["word"] !== undefined) return CONSTANT.test(part) ? "constant" : NUMBER.test(part) ? "number" : null;
  return (["comment", "key", "string"] as const).find((kind) => groups[kind] !== undefined) ?? null;
}
