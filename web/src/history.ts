/** Rates and latencies of the last minutes, made of one picture after the other. */

import type { LatencyPicture, Picture, RulePicture } from "./types.ts";

/** Seconds that are kept. */
export const LENGTH = 300;

/** Pictures over which latencies are taken: one second alone has few requests. */
const LATENCY_WINDOW = 10;

export interface Totals {
  allowed: number;
  refused: number;
}

/** A stretch of time from one picture to the next. */
export interface Moment {
  /** Its end, in seconds since 1970. */
  at: number;
  allowed: number;
  refused: number;
  /** Of each rule, per second. */
  rules: Map<string, Totals>;
  /** Half of the requests, and all but one in a hundred, took at most so long (µs). */
  p50: number | null;
  p99: number | null;
}

export class History {
  readonly moments: Moment[] = [];
  #before: Picture[] = [];

  /** Takes the next picture. One of another process begins anew: then it returns true. */
  add(picture: Picture): boolean {
    const last = this.#before.at(-1);
    const isAnother = last !== undefined && isOfAnother(last, picture);
    if (isAnother) this.clear();
    const before = this.#before.at(-1);
    if (before) {
      const moment = between(before, picture, this.#before[0] ?? before);
      if (!moment) return false;
      this.moments.push(moment);
      // Of a page that was asleep, little is left.
      while ((this.moments[0]?.at ?? Infinity) <= moment.at - LENGTH) this.moments.shift();
    }
    this.#before.push(picture);
    if (this.#before.length > LATENCY_WINDOW) this.#before.shift();
    return isAnother;
  }

  clear(): void {
    this.moments.length = 0;
    this.#before = [];
  }

  /** The latency histograms that the latest quantiles lie between. */
  get latencies(): { window: LatencyPicture[]; end: LatencyPicture[] } | undefined {
    const [first, last] = [this.#before[0], this.#before.at(-1)];
    return first && last ? { window: first.latency, end: last.latency } : undefined;
  }

  get latest(): Moment | undefined {
    return this.moments.at(-1);
  }
}

/** Whether the picture is of another process: the totals of one never fall. */
function isOfAnother(before: Picture, after: Picture): boolean {
  if (after.uptime_us < before.uptime_us || after.version !== before.version) return true;
  const known = new Map(after.rules.map((rule) => [rule.rule, rule]));
  const isLess = before.rules.some((was) => {
    const is = known.get(was.rule);
    const totals = (rule?: RulePicture) => [rule?.allowed, rule?.refused, rule?.shadow_allowed, rule?.shadow_refused];
    return totals(is).some((total, place) => (total ?? 0) < (totals(was)[place] ?? 0));
  });
  return isLess || since(before.latency, after.latency).some(({ count }) => count < 0);
}

function between(before: Picture, after: Picture, first: Picture): Moment | null {
  const seconds = (after.uptime_us - before.uptime_us) / 1e6;
  if (seconds <= 0) return null;
  const known = new Map(before.rules.map((rule) => [rule.rule, rule]));
  const rules = new Map<string, Totals>();
  let [allowed, refused] = [0, 0];
  for (const rule of after.rules) {
    const was = known.get(rule.rule);
    // A shadow rule has figures of its own: they decide nothing.
    const [passed, stopped] = rule.shadow
      ? [rule.shadow_allowed - (was?.shadow_allowed ?? 0), rule.shadow_refused - (was?.shadow_refused ?? 0)]
      : [rule.allowed - (was?.allowed ?? 0), rule.refused - (was?.refused ?? 0)];
    rules.set(rule.rule, { allowed: passed / seconds, refused: stopped / seconds });
    if (rule.shadow) continue;
    allowed += passed / seconds;
    refused += stopped / seconds;
  }
  const took = since(first.latency, after.latency);
  return { at: after.time_us / 1e6, allowed, refused, rules, p50: quantile(took, 0.5), p99: quantile(took, 0.99) };
}

/** Upper bounds (µs) and how many were within each, over all protocols. */
export type Buckets = { within: number; count: number }[];

/** What was counted between two readings. */
export function since(before: LatencyPicture[], after: LatencyPicture[]): Buckets {
  const counts = new Map<number, number>();
  const count = (latency: LatencyPicture[], sign: number) => {
    for (const { buckets } of latency) {
      for (const bucket of buckets) {
        const within = bucket.within_us ?? Infinity;
        counts.set(within, (counts.get(within) ?? 0) + sign * bucket.count);
      }
    }
  };
  count(after, 1);
  count(before, -1);
  return [...counts].map(([within, count]) => ({ within, count })).sort((one, other) => one.within - other.within);
}

/** The bound that so large a part is within, evenly spread inside its bucket; none of nothing. */
export function quantile(buckets: Buckets, part: number): number | null {
  const all = buckets.reduce((sum, bucket) => sum + bucket.count, 0);
  if (all <= 0) return null;
  const wanted = all * part;
  let [seen, lower] = [0, 0];
  for (const { within, count } of buckets) {
    if (count > 0 && seen + count >= wanted) {
      if (within === Infinity) return lower;
      return lower + ((within - lower) * (wanted - seen)) / count;
    }
    seen += count;
    if (within !== Infinity) lower = within;
  }
  return lower;
}
