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
  const latency = () => ({ p50_us: counts.map(() => null), p99_us: counts.map(() => null) });
  return { step_us: stepUs, end_us: START * 1e6, latency: latency(), rules: [{ ...rule, latency: latency() }] };
}

const TOOK = { p50_us: 40, p99_us: 90 };
const ALL_TOOK = { p50: 50, p99: 100 };

const picture = (seconds: number, rules: Partial<RulePicture>[]): Picture =>
  ({
    time_us: seconds * 1e6,
    rules: rules.map((rule) => ({ rule: "orders", allowed: 0, refused: 0, shadow_allowed: 0, shadow_refused: 0, latency: TOOK, ...rule })),
  }) as Picture;

test("the history is there at once, and pictures add a step each", () => {
  const timeline = new Timeline();
  timeline.load(told(300, 1e6, 7, 3), "5m");
  assert.deepEqual([timeline.times.length, timeline.times.at(-1)], [300, START - 1]);
  timeline.follow(picture(START - 1, [{ allowed: 10 }]), picture(START - 0.5, [{ allowed: 99 }]), ALL_TOOK);
  assert.equal(timeline.all().allowed.at(-1), 3, "the history has this step already");
  timeline.follow(picture(START - 0.5, [{ allowed: 10 }]), picture(START + 0.5, [{ allowed: 12, refused: 1 }]), ALL_TOOK);
  assert.deepEqual(timeline.all().allowed.slice(-3), [7, 3, 2]);
  assert.deepEqual(timeline.all().refused.slice(-2), [0, 1]);
  assert.deepEqual([timeline.times.length, timeline.times.at(-1)], [300, START]);
});

test("seconds without a picture are empty, and a new rule begins with its first", () => {
  const timeline = new Timeline();
  timeline.load(told(300, 1e6, 5), "5m");
  timeline.follow(picture(START, []), picture(START + 2, [{ rule: "new", refused: 6 }]), ALL_TOOK);
  assert.deepEqual(timeline.of("orders", false).allowed.slice(-4), [5, 0, 0, 0]);
  assert.deepEqual(timeline.of("new", false).refused.slice(-2), [0, 6]);
  timeline.follow(picture(START + 2, []), picture(START + 9_000, []), ALL_TOOK);
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
  timeline.follow(picture(START, []), picture(START + 90, [{ allowed: 5 }]), ALL_TOOK);
  assert.deepEqual([timeline.times.at(-1), timeline.all().allowed.at(-1)], [START - 60, 8]);
});

test("fewer points have the same sum", () => {
  assert.deepEqual(condense([1, 2, 3, 4, 5], 2), [3, 12]);
  assert.deepEqual(condense([1, 2], 2), [1, 2]);
});

test("latencies follow the steps: of all rules, and of each that decided", () => {
  const timeline = new Timeline();
  timeline.load(told(300, 1e6, 7, 3), "5m");
  timeline.follow(picture(START, [{ allowed: 10 }]), picture(START + 1, [{ allowed: 12 }, { rule: "idle" }]), ALL_TOOK);
  assert.deepEqual(timeline.took().p50_us.slice(-2), [null, 50]);
  assert.deepEqual([timeline.took().p99_us.length, timeline.took("orders").p99_us.at(-1)], [300, 90]);
  assert.deepEqual(timeline.took("idle").p50_us.at(-1), null);
});
