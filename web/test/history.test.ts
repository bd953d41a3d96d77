import assert from "node:assert/strict";
import { test } from "node:test";
import { History, LENGTH, quantile, since } from "../src/history.ts";
import type { LatencyPicture, Picture, RulePicture } from "../src/types.ts";

const latency = (...counts: number[]): LatencyPicture[] => {
  const bounds = [100, 200, null];
  return [{ protocol: "http", sum_us: 0, buckets: counts.map((count, place) => ({ within_us: bounds[place] ?? null, count })) }];
};

const rule = (name: string, allowed: number, refused: number): RulePicture => ({
  rule: name,
  limit: "1/s",
  key: null,
  shadow: name === "shadow",
  allowed: name === "shadow" ? 0 : allowed,
  refused: name === "shadow" ? 0 : refused,
  degraded: 0,
  shadow_allowed: name === "shadow" ? allowed : 0,
  shadow_refused: name === "shadow" ? refused : 0,
  missing: 0,
  latency: { p50_us: null, p99_us: null },
  reported: 0,
  unrecorded: 0,
});

const picture = (seconds: number, rules: RulePicture[], took = latency(0, 0, 0)): Picture =>
  ({ version: "1", time_us: seconds * 1e6, uptime_us: seconds * 1e6, rules, latency: took }) as Picture;

test("rates are differences over the time that has passed", () => {
  const history = new History();
  history.add(picture(10, [rule("one", 100, 10), rule("shadow", 5, 5)]));
  assert.equal(history.moments.length, 0);
  history.add(picture(12, [rule("one", 120, 14), rule("new", 2, 0), rule("shadow", 9, 5)]));
  assert.equal(history.latest?.allowed, 11);
  assert.equal(history.latest?.refused, 2);
  assert.deepEqual(history.latest?.rules.get("one"), { allowed: 10, refused: 2 });
  assert.deepEqual(history.latest?.rules.get("shadow"), { allowed: 2, refused: 0 });
});

test("a server that was started again begins anew, and never goes below zero", () => {
  const history = new History();
  history.add(picture(1_000, [rule("one", 5_000, 0)]));
  history.add(picture(1_001, [rule("one", 5_001, 0)]));
  history.add(picture(1, [rule("one", 3, 0)]));
  assert.equal(history.moments.length, 0);
  history.add(picture(2, [rule("one", 4, 0)]));
  assert.equal(history.latest?.allowed, 1);
});

test("a server that was started again while no page was open is another one, however long it has been up", () => {
  const history = new History();
  history.add(picture(5, [rule("one", 50, 9)], latency(7, 0, 0)));
  history.add(picture(6, [rule("one", 60, 9)], latency(8, 0, 0)));
  history.add(picture(30, [rule("one", 70, 3)], latency(9, 0, 0)));
  assert.equal(history.moments.length, 0);
  history.add(picture(31, [rule("one", 71, 3)], latency(9, 0, 0)));
  assert.deepEqual([history.latest?.allowed, history.latest?.refused], [1, 0]);
  history.add(picture(40, [rule("one", 80, 3)], latency(2, 0, 0)));
  assert.equal(history.moments.length, 0, "what took long is counted as well");
});

test("what is kept has a bound", () => {
  const history = new History();
  for (let second = 0; second < LENGTH * 2; second += 1) history.add(picture(second + 1, [rule("one", second, 0)]));
  assert.equal(history.moments.length, LENGTH);
});

test("a quantile lies where its share of the requests ends", () => {
  assert.equal(quantile(since([], latency(0, 0, 0)), 0.5), null);
  assert.equal(quantile(since([], latency(10, 0, 0)), 0.5), 50);
  assert.equal(quantile(since([], latency(50, 50, 0)), 0.99), 198);
  assert.equal(quantile(since(latency(90, 0, 0), latency(90, 10, 0)), 0.5), 150, "only what came since counts");
  assert.equal(quantile(since([], latency(0, 0, 7)), 0.5), 200, "above all bounds, the last is all that is known");
});
