import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../src/format.ts";
import { SHAPES, limitWords, periods } from "../src/traffic.ts";

test("times have one unit, or two where one is too coarse", () => {
  const said = [0, 999, 1_500, 42_000, 1_500_000, 59_900_000, 61e6, 3_600e6, 90_061e6].map(format.duration);
  assert.deepEqual(said, ["0 µs", "999 µs", "1.5 ms", "42 ms", "1.5 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([0, 1.2e6, 61e6, 7_200e6].map(format.ago), ["now", "1 s ago", "1 min ago", "2 h ago"]);
});

test("a time that is rounded up to the next unit is told in that", () => {
  const said = [999.6, 9_960, 999_600, 9_960_000].map(format.duration);
  assert.deepEqual(said, ["1.0 ms", "10 ms", "1.0 s", "10 s"]);
});

test("the hour after midnight is hour zero", () => {
  assert.match(format.clock(new Date(2024, 1, 29, 0, 5, 7).getTime() * 1_000), /^00:05:07$/);
});

test("numbers are as long as they need to be", () => {
  assert.deepEqual([0, 0.5, 9.96, 1_234, 1_234_567].map(format.rate), ["0", "0.5", "10.0", "1,234", "1.23M"]);
  assert.deepEqual([[0, 0], [1, 10_000], [1, 3], [1, 30]].map(([part, all]) => format.percent(part ?? 0, all ?? 0)), ["0%", "<0.1%", "33%", "3.3%"]);
});

test("limits and traffic are in the server's words", () => {
  assert.equal(limitWords({ count: 10, unit: "min", burst: 5 }), "10/min burst 5");
  assert.deepEqual([periods(12, "s"), periods(0.8, "s"), periods(2, "min"), periods(0.5, "h")], ["12s", "800ms", "2min", "30min"]);
  const boundary = SHAPES.find(({ id }) => id === "boundary");
  assert.equal(boundary?.words({ count: 10, unit: "s", burst: null }), "bursts 20 every 4s within 400ms from 800ms");
});
