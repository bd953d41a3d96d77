import assert from "node:assert/strict";
import { test } from "node:test";
import { diff, hunks, type Line } from "../src/diff.ts";

const MARKS = { same: " ", removed: "-", added: "+" };
const drawn = (lines: (Line | null)[]) => lines.map((line) => (line ? MARKS[line.kind] + line.text : "…")).join("\n");

test("lines that differ are removed and added, the others stay", () => {
  assert.equal(drawn(diff("a\nb\nc\n", "a\nx\nc\nd\n")), " a\n-b\n+x\n c\n+d");
  assert.equal(drawn(diff("", "a\n")), "+a");
  assert.equal(drawn(diff("a\r\nb", "a\nb\n")), " a\n b", "line ends are no change");
  assert.equal(drawn(diff("a\nb\na\nb\n", "b\na\n")), "-a\n b\n a\n-b");
});

/** Any two texts: what stays and is removed is the one, what stays and is added the other. */
test("both texts can be read from the diff, and it is as short as can be", () => {
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  const text = () => Array.from({ length: random(9) }, () => "abc"[random(3)] ?? "").map((line) => `${line}\n`).join("");
  for (let round = 0; round < 500; round += 1) {
    const [before, after] = [text(), text()];
    const lines = diff(before, after);
    const side = (gone: Line["kind"]) => lines.filter(({ kind }) => kind !== gone).map((line) => `${line.text}\n`).join("");
    assert.deepEqual([side("added"), side("removed")], [before, after]);
    assert.equal(lines.filter(({ kind }) => kind === "same").length, longest(before.split("\n").slice(0, -1), after.split("\n").slice(0, -1)));
  }
});

/** The length of the longest common subsequence, by its definition. */
function longest([first, ...old]: string[], now: string[]): number {
  if (first === undefined) return 0;
  const at = now.indexOf(first);
  const without = longest(old, now);
  return at < 0 ? without : Math.max(without, 1 + longest(old, now.slice(at + 1)));
}

test("what is far from a change is left out", () => {
  const before = Array.from({ length: 20 }, (_, line) => String(line)).join("\n");
  assert.equal(drawn(hunks(diff(before, before.replace("\n9\n", "\nnine\n")), 1)), "…\n 8\n-9\n+nine\n 10\n…");
});

test("texts too long to compare line by line are told as a whole", () => {
  const many = (word: string) => Array.from({ length: 3_000 }, (_, line) => `${word} ${line}\n`).join("");
  const lines = diff(many("a"), many("b"));
  assert.deepEqual([lines.length, lines.at(-1)?.kind], [6_000, "added"]);
});
