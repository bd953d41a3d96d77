/** The shapes that the server speaks in: see /openapi.json. */

import type { CheckRequest } from "./request.ts";

export interface Picture {
  version: string;
  time_us: number;
  uptime_us: number;
  leaving: boolean;
  connections: number;
  failures: number;
  store: StorePicture;
  policy: PolicyPicture;
  rules: RulePicture[];
  latency: LatencyPicture[];
  reservations: ReservationsPicture;
  crossings: CrossingPicture[];
  top_refused: TopRefused[];
  recent_refusals: RefusalPicture[];
}

export interface StorePicture {
  kind: string;
  reachable: boolean;
  breaker: "closed" | "open" | null;
  keys: number | null;
  max_keys: number | null;
  overflows: number;
  round_trips: number;
  failures: number;
  calls_skipped: number;
  outages: number;
  leased: number;
  repeated: number;
}

export interface PolicyPicture {
  file: string | null;
  generation: number;
  since_us: number;
  errors: string | null;
}

export interface RulePicture {
  rule: string;
  limit: string | null;
  key: string[] | null;
  shadow: boolean;
  allowed: number;
  refused: number;
  degraded: number;
  shadow_allowed: number;
  shadow_refused: number;
  missing: number;
  reported: number;
  unrecorded: number;
  /** Of the requests that it decided in the last ten seconds. */
  latency: { p50_us: number | null; p99_us: number | null };
}

export interface LatencyPicture {
  protocol: string;
  sum_us: number;
  buckets: LatencyBucket[];
}

export interface LatencyBucket {
  within_us: number | null;
  count: number;
}

export interface ReservationsPicture {
  open: number;
  expired: number;
  oldest: HeldPicture[];
}

export interface HeldPicture {
  id: string;
  rule: string;
  key: string;
  cost: number;
  since_us: number;
  expires_us: number;
}

export interface CrossingPicture {
  at_us: number;
  rule: string;
  key: string;
  threshold: number;
  used: number;
  limit: number;
  resets_at_us: number;
  shadow: boolean;
}

export interface TopRefused {
  rule: string;
  key: string;
  refused: number;
  error: number;
}

export interface RefusalPicture {
  at_us: number;
  rule: string;
  key: string;
  times: number;
  cost: number;
  limit: number;
  retry_after_us: number | null;
  /** The refused request, unless it cannot be asked again. */
  request: CheckRequest | null;
}

export interface Answer {
  allowed: boolean;
  rule: string;
  limit: number | null;
  remaining: number | null;
  retry_after_us: number | null;
  reset_after_us: number | null;
  delay_us: number;
  degraded: boolean;
}

export interface Explained {
  decision: Answer;
  text: string;
  rules: ExplainedRule[];
}

export interface ExplainedRule {
  rule: string;
  shadow: boolean;
  binds: boolean;
  says: string;
  key?: string;
  cost?: number;
  limit?: string;
  answer?: Answer;
  debt_us?: number;
  resets_on?: string;
}

export interface PolicyDocument {
  file: string | null;
  format: "toml" | "yaml";
  text: string;
}

export interface Validated {
  valid: boolean;
  errors: PolicyError[];
}

export interface PolicyError {
  message: string;
  line: number | null;
  column: number | null;
  help: string | null;
  text: string;
}

/** The limits of a rule, with the first of its overrides and tiers. */
export interface RuleLimits {
  rule: string;
  limit: string;
  exceptions_in_all: number;
  exceptions: { attribute: string; value: string; limit: string }[];
}

/** Who the token belongs to, and what it may do. */
export interface Session {
  identity: string | null;
  rights: string[];
}

/** What two policies decide of the same requests. */
export interface Trial {
  requests: number;
  seconds: number;
  complete: boolean;
  admitted_before: number;
  refused_before: number;
  refused_after: number;
  /** Requests that lack what a policy needs to decide them. */
  undecided_before: number;
  undecided_after: number;
  rules: { rule: string; refused_before: number; refused_after: number }[];
  newly_refused: TrialKey[];
  newly_admitted: TrialKey[];
}

export interface TrialKey {
  rule: string;
  key: string;
  requests: number;
  attributes: Record<string, string | number>;
}

export interface Applied extends Validated {
  /** A line for each rule that is another than before. */
  changes: string[];
}

export interface PolicyVersion extends PolicyDocument {
  generation: number;
  since_us: number;
  by: string;
  changes: string[];
}

/** Counts per step, the oldest first. */
export interface ToldHistory {
  step_us: number;
  end_us: number;
  latency: ToldLatency;
  rules: { rule: string; allowed: number[]; refused: number[]; shadow_allowed: number[]; shadow_refused: number[]; latency: ToldLatency }[];
}

/** Quantiles per step; null where there was no request. */
export interface ToldLatency {
  p50_us: (number | null)[];
  p99_us: (number | null)[];
}

export interface AuditEntry {
  time: string;
  peer: string | null;
  identity: string;
  action: string;
  outcome: "done" | "refused";
  reason?: string;
}
