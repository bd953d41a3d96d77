import assert from "node:assert/strict";
import { test } from "node:test";
import { placeAt } from "../src/place.ts";
import { complete, type Schema } from "../src/schema.ts";
import { tokens, type Format } from "../src/syntax.ts";

const kinds = (text: string, format: Format) =>
  tokens(text, format).flatMap(({ kind, text }) => (kind ? [`${kind} ${text}`] : []));

test("TOML has colours, and no letter is lost", () => {
  const text = '[rules.orders] # all\nlimit = "5/s"\nkey = [\n  "user", # who\n]\ntiers.plan.pro = "9/s"\nshadow = true\nmatch = { n = 12 }\n';
  assert.deepEqual(kinds(text, "toml"), [
    "header [rules.orders]",
    "comment # all",
    "key limit",
    'string "5/s"',
    "key key",
    'string "user"',
    "comment # who",
    "key tiers",
    "key plan",
    "key pro",
    'string "9/s"',
    "key shadow",
    "constant true",
    "key match",
    "key n",
    "number 12",
  ]);
  assert.equal(tokens(text, "toml").map(({ text }) => text).join(""), text);
  const listed = ["key deny", "key ip", "key cidr", 'string "192.0.2.0/24"', "key user", 'string "a"'];
  assert.deepEqual(kinds('deny = [{ ip = { cidr = "192.0.2.0/24" } }, { user = "a" }]', "toml"), listed);
});

test("YAML and JSON have colours", () => {
  const text = "rules: # all\n  orders:\n    limit: 5/s\n    shadow: true\n    key: [user, \"a b\"]\n";
  const expected = ["key rules", "comment # all", "key orders", "key limit", "key shadow", "constant true", "key key", 'string "a b"'];
  assert.deepEqual(kinds(text, "yaml"), expected);
  assert.deepEqual(kinds('{"rules": {"a": {"n": 5}}}', "yaml"), ['key "rules"', 'key "a"', 'key "n"', "number 5"]);
  assert.equal(tokens(text, "yaml").map(({ text }) => text).join(""), text);
});

test("unfinished texts are read to their end", () => {
  for (const text of ['"', "[", "a = '''x", "a: 'x", "- - -", "= =", "\u0000", "{".repeat(50), '"\\']) {
    for (const format of ["toml", "yaml"] as const) {
      assert.equal(tokens(text, format).map(({ text }) => text).join(""), text);
      placeAt(text, format);
    }
  }
});

const at = (text: string, format: Format) => {
  const place = placeAt(text, format);
  return place && `${place.kind} ${place.path.join("/")} ${place.quote}${place.typed}`;
};

test("the cursor's place in TOML", () => {
  assert.equal(at("", "toml"), "key  ");
  assert.equal(at("[ru", "toml"), "header  ru");
  assert.equal(at("[rules.or", "toml"), "header rules or");
  assert.equal(at("[rules.orders]\nli", "toml"), "key rules/orders li");
  assert.equal(at('[rules.orders]\nlimit = "5/s"\nmis', "toml"), "key rules/orders mis");
  assert.equal(at('[rules.orders]\nmissing = "s', "toml"), 'value rules/orders/missing "s');
  assert.equal(at("[rules.orders]\nshadow = t", "toml"), "value rules/orders/shadow t");
  assert.equal(at('[rules.orders]\nkey = [ # who\n  "user",\n  { attr', "toml"), "key rules/orders/key/[] attr");
  assert.equal(at('[rules.orders]\nmatch = { path = { pre', "toml"), "key rules/orders/match/path pre");
  assert.equal(at('[rules.orders]\ntiers.plan.pro = "', "toml"), 'value rules/orders/tiers/plan/pro "');
  assert.equal(at("[rules.orders]\nlimit # wh", "toml"), null);
  assert.equal(at("broken here\n[lists]\nal", "toml"), "key lists al");
});

test("the cursor's place in YAML and JSON", () => {
  assert.equal(at("ru", "yaml"), "key  ru");
  assert.equal(at("rules:\n  orders:\n    li", "yaml"), "key rules/orders li");
  assert.equal(at("rules:\n  a:\n    limit: 1/s\n  orders:\n    missing: s", "yaml"), "value rules/orders/missing s");
  assert.equal(at("rules:\n  a:\n    key:\n      - user\n      - attr", "yaml"), "value rules/a/key/[] attr");
  assert.equal(at("lists:\n  deny:\n  - user: ", "yaml"), "value lists/deny/[]/user ");
  assert.equal(at("rules:\n  a:\n    key: [user, {attr", "yaml"), "key rules/a/key/[] attr");
  assert.equal(at('{"rules": {"a": {"limit": "1/s", "sha', "yaml"), 'key rules/a "sha');
});

const SCHEMA: Schema = {
  $defs: {
    Rule: {
      properties: {
        limit: { type: "string", examples: ["5/s"], description: "The limit. In words." },
        missing: { $ref: "#/$defs/Missing", description: "Without a key: what then?" },
        shadow: { type: "boolean" },
      },
    },
    Missing: { oneOf: [{ const: "skip", description: "Not asked." }, { const: "shared" }] },
  },
  properties: { rules: { additionalProperties: { $ref: "#/$defs/Rule" } } },
};

const offered = (text: string, format: Format) => {
  const place = placeAt(text, format);
  return place ? complete(SCHEMA, place, format).map(({ text }) => text) : [];
};

test("completions come from the schema", () => {
  assert.deepEqual(offered("[", "toml"), ["rules"]);
  assert.deepEqual(offered("[rules.", "toml"), []);
  assert.deepEqual(offered("[rules.a]\n", "toml"), ["limit = ", "missing = ", "shadow = "]);
  assert.deepEqual(offered("[rules.a]\nmi", "toml"), ["missing = "]);
  assert.deepEqual(offered("[rules.a]\nmissing = ", "toml"), ['"skip"', '"shared"']);
  assert.deepEqual(offered('[rules.a]\nmissing = "sk', "toml"), ['skip"']);
  assert.deepEqual(offered("[rules.a]\nshadow = ", "toml"), ["true", "false"]);
  assert.deepEqual(offered("rules:\n  a:\n    missing: ", "yaml"), ["skip", "shared"]);
  assert.deepEqual(offered("rules:\n  a:\n    limit: ", "yaml"), ['"5/s"']);
  assert.deepEqual(offered('{"rules": {"a": {"sh', "yaml"), ["shadow"]);
  const place = placeAt("[rules.a]\nmissing = ", "toml");
  assert.equal(place && complete(SCHEMA, place, "toml")[0]?.about, "Not asked.");
});
