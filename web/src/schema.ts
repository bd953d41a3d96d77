/** The JSON Schema of policies: which names and values can stand at a place. */

import type { Place } from "./place.ts";
import type { Format } from "./syntax.ts";

/** As much of JSON Schema as completion needs. */
export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  description?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  examples?: unknown[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

export interface Completion {
  /** What is shown, and what it stands for. */
  name: string;
  about: string;
  /** What takes the place of what was typed. */
  text: string;
}

/** Completions that are offered at a time. */
export const MAX_COMPLETIONS = 40;

/** Schemas within schemas that are followed. */
const MAX_DEPTH = 16;

/** What can stand at the place, as far as it begins with what is typed. */
export function complete(root: Schema, place: Place, format: Format): Completion[] {
  const here = place.path.reduce((schemas, name) => schemas.flatMap((schema) => below(root, schema, name)), alternatives(root, root));
  // An item of a list in YAML may begin a table.
  const isItem = format === "yaml" && place.path.at(-1) === "[]" && place.kind === "value" && !place.quote;
  const found = [...(place.kind === "value" ? values(here, place, format) : []), ...(place.kind !== "value" || isItem ? names(root, here, place, format) : [])];
  const typed = place.typed.toLowerCase();
  const unique = new Map(found.map((completion) => [completion.name, completion]));
  return [...unique.values()].filter(({ name }) => name.toLowerCase().startsWith(typed)).slice(0, MAX_COMPLETIONS);
}

/** A schema, and all that it refers to or chooses from. */
function alternatives(root: Schema, schema: Schema, depth = 0): Schema[] {
  if (depth > MAX_DEPTH) return [];
  const name = /^#\/\$defs\/(.+)$/.exec(schema.$ref ?? "")?.[1];
  const target = name === undefined ? undefined : root.$defs?.[name];
  const others = [...(target ? [target] : []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...others.flatMap((other) => alternatives(root, other, depth + 1))];
}

function below(root: Schema, schema: Schema, name: string): Schema[] {
  if (name === "[]") return schema.items ? alternatives(root, schema.items) : [];
  const known = schema.properties && Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
  const next = known ?? schema.additionalProperties;
  return typeof next === "object" ? alternatives(root, next) : [];
}

function names(root: Schema, here: Schema[], { kind, quote }: Place, format: Format): Completion[] {
  return here.flatMap(({ properties = {} }) =>
    Object.entries(properties).map(([name, schema]) => {
      const about = sentence(alternatives(root, schema).find(({ description }) => description)?.description ?? "");
      const after = kind === "header" || quote ? "" : format === "toml" ? " = " : ": ";
      return { name, about, text: name + after };
    }),
  );
}

function values(here: Schema[], { quote }: Place, format: Format): Completion[] {
  return here.flatMap(({ const: only, enum: listed = [], examples = [], type, description = "" }) => {
    const isChoice = [type].flat().includes("boolean");
    const all = [...(only === undefined ? [] : [only]), ...listed, ...examples, ...(isChoice ? [true, false] : [])];
    const scalars = all.filter((value) => ["string", "number", "boolean"].includes(typeof value));
    return scalars.map((value) => ({ name: String(value), about: sentence(description), text: written(value, quote, format) }));
  });
}

/** A value as it is written: text of TOML has quotes, text of YAML where it needs them. */
function written(value: unknown, quote: string, format: Format): string {
  if (typeof value !== "string") return String(value);
  if (quote) return value + quote;
  return format === "toml" || !/^[A-Za-z][\w -]*$/.test(value) ? JSON.stringify(value) : value;
}

/** The first sentence of a description, in one line. */
function sentence(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return /^.*?[.:](?= |$)/.exec(line)?.[0].replace(/:$/, ".") ?? line;
}
