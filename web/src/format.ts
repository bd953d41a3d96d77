/** Numbers and times as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function count(value: number): string {
  return value < 100_000 ? whole.format(value) : short.format(value);
}

/** To the last digit. */
export function exact(value: number): string {
  return whole.format(value);
}

/** So many a second: tenths matter only below ten. */
export function rate(value: number): string {
  if (value === 0) return "0";
  return value < 10 ? tenth.format(value) : count(value);
}

/** A share of a whole, in percent. */
export function percent(part: number, all: number): string {
  if (all <= 0 || part === 0) return "0%";
  const value = (100 * part) / all;
  if (value > 0 && value < 0.1) return "<0.1%";
  return `${value < 10 ? tenth.format(value) : whole.format(value)}%`;
}

/** A length of time: one unit, or two where one is too coarse. */
export function duration(micros: number): string {
  // What would be rounded up to the next unit is told in that.
  if (micros < 999.5) return `${whole.format(micros)} µs`;
  if (micros < 9_950) return `${tenth.format(micros / 1_000)} ms`;
  if (micros < 999_500) return `${whole.format(micros / 1_000)} ms`;
  const seconds = micros / 1_000_000;
  if (seconds < 9.95) return `${tenth.format(seconds)} s`;
  if (seconds < 60) return `${whole.format(Math.max(10, Math.floor(seconds)))} s`;
  return coarse(Math.floor(seconds));
}

function coarse(seconds: number): string {
  const units: [string, number][] = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, length]) => seconds >= length);
  const [name, length] = units[first] ?? ["s", 1];
  const [next, finer] = units[first + 1] ?? ["s", 1];
  const rest = Math.floor((seconds % length) / finer);
  const head = `${whole.format(Math.floor(seconds / length))} ${name}`;
  return rest > 0 && length > 1 ? `${head} ${rest} ${next}` : head;
}

/** The same where it stands for itself, as on an axis: `1 ms`, not `1.0 ms`. */
export function round(micros: number): string {
  return duration(micros).replace(".0", "");
}

/** How long ago, in steps that a person can follow. */
export function ago(micros: number): string {
  const seconds = Math.max(0, Math.floor(micros / 1_000_000));
  if (seconds < 1) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  return `${coarse(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}

/** Day and time. */
export function moment(micros: number): string {
  return `${new Date(micros / 1_000).toLocaleDateString("sv")} ${clock(micros)}`;
}

/** The time of day. */
export function clock(micros: number): string {
  return new Date(micros / 1_000).toLocaleTimeString([], { hourCycle: "h23" });
}
