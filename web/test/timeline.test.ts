import assert from "node:assert/strict";
import { test } from "node:test";
import { Timeline, condense } from "../src/timeline.ts";
import type { Picture, RulePicture, ToldHistory } from "../src/types.ts";

const START = 1_800_000_000;

/** A history whose last steps of `orders` are these. */
function told(range: number, stepUs: number, ...last: number[]): ToldHistory {
  const counts = [...new Array<number>(range - last.length).fill(0), ...last];
  const zeros = counts.map(() => 0);
  const rule = { rule: "orders", allowed: counts, refused: zeros, shadow_allowed: zeros, shadow_refused: [...zeros.slice(1), 4] };
  return { step_us: stepUs, end_us: START * 1e6, rules: [rule] };
}

const picture = (seconds: number, rules: Partial<RulePicture>[]): Picture =>
  ({
    time_us: seconds * 1e6,
    rules: rules.map((rule) => ({ rule: "orders", allowed: 0, refused: 0, shadow_allowed: 0, shadow_refused: 0, ...rule })),
  }) as Picture;

test("the history is there at once, and pictures add a step each", () => {
  const timeline = new Timeline();
  timeline.load(told(300, 1e6, 7, 3), "5m");
  assert.deepEqual([timeline.times.length, timeline.times.at(-1)], [300, START - 1]);
  timeline.follow(picture(START - 1, [{ allowed: 10 }]), picture(START - 0.5, [{ allowed: 99 }]));
  assert.equal(timeline.all().allowed.at(-1), 3, "the history has this step already");
  timeline.follow(picture(START - 0.5, [{ allowed: 10 }]), picture(START + 0.5, [{ allowed: 12, refused: 1 }]));
  assert.deepEqual(timeline.all().allowed.slice(-3), [7, 3, 2]);
  assert.deepEqual(timeline.all().refused.slice(-2), [0, 1]);
  assert.deepEqual([timeline.times.length, timeline.times.at(-1)], [300, START]);
});

test("seconds without a picture are empty, and a new rule begins with its first", () => {
  const timeline = new Timeline();
  timeline.load(told(300, 1e6, 5), "5m");
  timeline.follow(picture(START, []), picture(START + 2, [{ rule: "new", refused: 6 }]));
  assert.deepEqual(timeline.of("orders", false).allowed.slice(-4), [5, 0, 0, 0]);
  assert.deepEqual(timeline.of("new", false).refused.slice(-2), [0, 6]);
  timeline.follow(picture(START + 2, []), picture(START + 9_000, []));
  assert.ok(timeline.all().allowed.every((count) => count === 0), "all of it was long ago");
});

test("what a shadow rule would refuse is no refusal", () => {
  const timeline = new Timeline();
  timeline.load(told(300, 1e6, 1), "5m");
  assert.equal(timeline.all().refused.at(-1), 0);
  assert.equal(timeline.of("orders", true).refused.at(-1), 4);
});

test("minutes are told by the server alone", () => {
  const timeline = new Timeline();
  timeline.load(told(60, 60e6, 8), "1h");
  timeline.follow(picture(START, []), picture(START + 90, [{ allowed: 5 }]));
  assert.deepEqual([timeline.times.at(-1), timeline.all().allowed.at(-1)], [START - 60, 8]);
});

test("fewer points have the same sum", () => {
  assert.deepEqual(condense([1, 2, 3, 4, 5], 2), [3, 12]);
  assert.deepEqual(condense([1, 2], 2), [1, 2]);
});
