/** Traffic for the playground: shapes that show what algorithms differ in, in the server's words. */

export type Unit = "s" | "min" | "h";

/** What a limit and its traffic are made of. */
export interface Numbers {
  count: number;
  unit: Unit;
  burst: number | null;
}

export interface Shape {
  id: string;
  name: string;
  /** What it shows. */
  about: string;
  words: (numbers: Numbers) => string;
}

const MILLIS: Record<Unit, number> = { s: 1_000, min: 60_000, h: 3_600_000 };
const WORDS: [string, number][] = [["h", 3_600_000], ["min", 60_000], ["s", 1_000], ["ms", 1]];

/** The limit in words, such as `10/s burst 20`. */
export function limitWords({ count, unit, burst }: Numbers): string {
  return burst === null ? `${count}/${unit}` : `${count}/${unit} burst ${burst}`;
}

/** So many periods as a length of time. */
export function periods(number: number, unit: Unit): string {
  const millis = Math.max(1, Math.round(number * MILLIS[unit]));
  const [name, length] = WORDS.find(([, length]) => millis % length === 0) ?? ["ms", 1];
  return `${millis / length}${name}`;
}

const rate = (times: number, { count, unit }: Numbers) => `${Math.max(1, Math.round(times * count))}/${unit}`;

export const SHAPES: Shape[] = [
  {
    id: "boundary",
    name: "A burst across a boundary",
    about: "Twice the limit, around the end of a window: a fixed window admits all of it.",
    words: ({ count, unit }) =>
      `bursts ${2 * count} every ${periods(4, unit)} within ${periods(0.4, unit)} from ${periods(0.8, unit)}`,
  },
  {
    id: "steady",
    name: "Steadily too much",
    about: "Half as much again as the limit, evenly: which algorithm spreads what it admits, and which admits it in lumps?",
    words: (numbers) => `constant ${rate(1.5, numbers)}`,
  },
  {
    id: "poisson",
    name: "By chance",
    about: "A little less than the limit on average, each request independent: what chance alone is refused.",
    words: (numbers) => `poisson ${rate(0.9, numbers)}`,
  },
  {
    id: "on-off",
    name: "On and off",
    about: "Three times the limit for a while, then silence: which algorithm makes up for the silence?",
    words: (numbers) => `on-off ${rate(3, numbers)} ${periods(2, numbers.unit)} on ${periods(3, numbers.unit)} off`,
  },
  {
    id: "day",
    name: "A short day",
    about: "From a fifth of the limit at night to twice the limit at noon.",
    words: (numbers) => `diurnal ${rate(0.2, numbers)} to ${rate(2, numbers)} every ${periods(12, numbers.unit)}`,
  },
  {
    id: "reservations",
    name: "Reservations",
    about: "Charged as estimated when they come, settled to what they took when they end.",
    words: ({ count, unit, ...rest }) => {
      const cost = Math.min(2, count);
      const times = `${periods(1, unit)}..${periods(3, unit)}`;
      return `poisson ${rate(0.6, { count, unit, ...rest })} cost ${cost} actual 1..${cost + 1} lasting ${times}`;
    },
  },
  {
    id: "classes",
    name: "Two classes",
    about: "Background work leaves half of the limit to what is urgent, and is refused first.",
    words: (numbers) => `${rate(0.6, numbers)} + ${rate(1.2, numbers)} floor 50%`,
  },
];
