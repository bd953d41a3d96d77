/** What each rule decided, step by step: the server's history, and the pictures that came after it. */

import type { Picture, RulePicture, ToldHistory, ToldLatency } from "./types.ts";

export const RANGES = ["5m", "15m", "1h", "24h"] as const;
export type Range = (typeof RANGES)[number];

export const RANGE_WORDS: Record<Range, string> = { "5m": "5 min", "15m": "15 min", "1h": "1 h", "24h": "24 h" };

/** Steps that the server tells for a range. */
const STEPS: Record<Range, number> = { "5m": 300, "15m": 900, "1h": 60, "24h": 1_439 };

const KINDS = ["allowed", "refused", "shadow_allowed", "shadow_refused"] as const;
type Counts = Record<(typeof KINDS)[number], number[]> & { latency: ToldLatency };

/** Quantiles of one step. */
export interface Quantiles {
  p50: number | null;
  p99: number | null;
}

/** Counts per step, the oldest first. */
export interface Series {
  allowed: number[];
  refused: number[];
}

export class Timeline {
  #rules = new Map<string, Counts>();
  /** Of all rules together. */
  #latency: ToldLatency = { p50_us: [], p99_us: [] };
  #steps = 0;
  #stepUs = 1e6;
  /** The number of the step after the last, counted from 1970. */
  #end = 0;

  /** Takes the server's history in place of what is there. */
  load(told: ToldHistory, range: Range): void {
    this.#steps = STEPS[range];
    this.#stepUs = told.step_us;
    this.#end = Math.round(told.end_us / told.step_us);
    this.#latency = told.latency;
    this.#rules = new Map(told.rules.map(({ rule, ...counts }) => [rule, counts]));
  }

  clear(): void {
    this.#steps = 0;
    this.#rules.clear();
  }

  /**
   * Adds what was decided from one picture to the next, and says whether it is all there. Minutes come from the
   * server alone: it tells whole ones. A second that the server's history has already may have been read in its midst.
   */
  follow(before: Picture, after: Picture, took: Quantiles): boolean {
    if (this.#steps === 0 || this.#stepUs > 1e6) return true;
    const at = Math.floor(after.time_us / this.#stepUs);
    if (at < this.#end) return decided(after) === decided(before);
    this.#advance(Math.min(at + 1 - this.#end, this.#steps));
    this.#end = at + 1;
    const known = new Map(before.rules.map((rule) => [rule.rule, rule]));
    setLast(this.#latency, took);
    for (const rule of after.rules) this.#add(rule, known.get(rule.rule));
    return true;
  }

  #advance(steps: number): void {
    const empty = new Array<number>(steps).fill(0);
    const none = new Array<null>(steps).fill(null);
    const latencies = [this.#latency];
    for (const counts of this.#rules.values()) {
      for (const kind of KINDS) counts[kind] = [...counts[kind].slice(steps), ...empty];
      latencies.push(counts.latency);
    }
    for (const latency of latencies) {
      latency.p50_us = [...latency.p50_us.slice(steps), ...none];
      latency.p99_us = [...latency.p99_us.slice(steps), ...none];
    }
  }

  #add(rule: RulePicture, before: RulePicture | undefined): void {
    for (const kind of KINDS) {
      const added = rule[kind] - (before?.[kind] ?? 0);
      if (added <= 0) continue;
      const counts = this.#rules.get(rule.rule) ?? this.#empty();
      this.#rules.set(rule.rule, counts);
      counts[kind][this.#steps - 1] = (counts[kind][this.#steps - 1] ?? 0) + added;
      // What took so long is of the last seconds, and so is this.
      setLast(counts.latency, { p50: rule.latency.p50_us, p99: rule.latency.p99_us });
    }
  }

  #empty(): Counts {
    const zeros = () => new Array<number>(this.#steps).fill(0);
    const none = () => new Array<null>(this.#steps).fill(null);
    const latency = { p50_us: none(), p99_us: none() };
    return { allowed: zeros(), refused: zeros(), shadow_allowed: zeros(), shadow_refused: zeros(), latency };
  }

  get stepUs(): number {
    return this.#stepUs;
  }

  /** The beginning of each step, in seconds since 1970. */
  get times(): number[] {
    const seconds = this.#stepUs / 1e6;
    return Array.from({ length: this.#steps }, (_, step) => (this.#end - this.#steps + step) * seconds);
  }

  /** What one rule decided; of a shadow rule, what it would have decided. */
  of(rule: string, isShadow: boolean): Series {
    const counts = this.#rules.get(rule) ?? this.#empty();
    return isShadow
      ? { allowed: counts.shadow_allowed, refused: counts.shadow_refused }
      : { allowed: counts.allowed, refused: counts.refused };
  }

  /** How long decisions took: those of one rule, or all. */
  took(rule?: string): ToldLatency {
    return rule === undefined ? this.#latency : (this.#rules.get(rule) ?? this.#empty()).latency;
  }

  /** What all rules decided; shadow rules decide nothing. */
  all(): Series {
    const total = this.#empty();
    for (const counts of this.#rules.values()) {
      counts.allowed.forEach((count, step) => (total.allowed[step] = (total.allowed[step] ?? 0) + count));
      counts.refused.forEach((count, step) => (total.refused[step] = (total.refused[step] ?? 0) + count));
    }
    return { allowed: total.allowed, refused: total.refused };
  }
}

function setLast({ p50_us, p99_us }: ToldLatency, { p50, p99 }: Quantiles): void {
  if (p50_us.length === 0) return;
  p50_us[p50_us.length - 1] = p50;
  p99_us[p99_us.length - 1] = p99;
}

/** All that the rules of a picture have decided. */
function decided({ rules }: Picture): number {
  return sum(rules.flatMap((rule) => KINDS.map((kind) => rule[kind])));
}

export function sum(values: number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** Fewer values, each the sum of its neighbours: for pictures of few pixels. */
export function condense(values: number[], most: number): number[] {
  const each = Math.ceil(values.length / most);
  if (each <= 1) return values;
  // From the end, so that the latest value is whole.
  const parts: number[] = [];
  for (let end = values.length; end > 0; end -= each) parts.unshift(sum(values.slice(Math.max(0, end - each), end)));
  return parts;
}
