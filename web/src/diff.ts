/** Which lines of two texts differ: the longest common subsequence, by hand. */

export interface Line {
  kind: "same" | "removed" | "added";
  text: string;
}

/** Cells of the table beyond which only the ends are compared: 16 MB. */
const MAX_CELLS = 4_000_000;

export function diff(before: string, after: string): Line[] {
  const [old, now] = [lines(before), lines(after)];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const same = (text: string): Line => ({ kind: "same", text });
  const middle = between(old.slice(start, old.length - end), now.slice(start, now.length - end));
  return [...old.slice(0, start).map(same), ...middle, ...old.slice(old.length - end).map(same)];
}

/** Lines without their ends; the last one may lack it. */
function lines(text: string): string[] {
  const all = text.replaceAll("\r\n", "\n").split("\n");
  if (all.at(-1) === "") all.pop();
  return all;
}

function between(old: string[], now: string[]): Line[] {
  const removed = (text: string): Line => ({ kind: "removed", text });
  const added = (text: string): Line => ({ kind: "added", text });
  const width = now.length + 1;
  if ((old.length + 1) * width > MAX_CELLS) return [...old.map(removed), ...now.map(added)];
  // How many lines the rests from here on have in common.
  const common = new Uint32Array((old.length + 1) * width);
  const at = (row: number, column: number) => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = now.length - 1; column >= 0; column -= 1) {
      const isSame = old[row] === now[column];
      common[row * width + column] = isSame ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const result: Line[] = [];
  let [row, column] = [0, 0];
  while (row < old.length || column < now.length) {
    if (row < old.length && column < now.length && old[row] === now[column]) {
      result.push({ kind: "same", text: old[row] ?? "" });
      row += 1;
      column += 1;
    } else if (row < old.length && (column === now.length || at(row + 1, column) >= at(row, column + 1))) {
      result.push(removed(old[row] ?? ""));
      row += 1;
    } else {
      result.push(added(now[column] ?? ""));
      column += 1;
    }
  }
  return result;
}

/** Only what changed, with so many lines around it; null stands for what is left out. */
export function hunks(all: Line[], around: number): (Line | null)[] {
  const isNear = all.map((_, place) => all.slice(Math.max(0, place - around), place + around + 1).some(({ kind }) => kind !== "same"));
  return all.flatMap((line, place) => (isNear[place] ? [line] : isNear[place - 1] || place === 0 ? [null] : []));
}
