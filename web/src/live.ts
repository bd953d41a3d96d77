/** What the views show: the server's history of a range, and the pictures that follow. */

import { readHistory } from "./api.ts";
import { History } from "./history.ts";
import { DEFAULT_RANGE } from "./route.ts";
import { Timeline, type Range } from "./timeline.ts";
import type { Picture } from "./types.ts";

/** Seconds after which the history is read again: it is exact where pictures are a moment early or late. */
const REFRESH = 30;

export class Live {
  readonly history = new History();
  readonly timeline = new Timeline();
  picture: Picture | null = null;
  isPaused = false;
  #range: Range = DEFAULT_RANGE;
  #loadedAt = -Infinity;
  #loading = false;
  /** The range that the timeline has. */
  #shown: Range | null = null;

  constructor(private readonly onChange: () => void) {}

  get range(): Range {
    return this.#range;
  }

  set range(range: Range) {
    if (range === this.#range) return;
    this.#range = range;
    this.#loadedAt = -Infinity;
    if (this.picture) void this.#load();
  }

  /** Takes the next picture, also while the views are paused. */
  take(picture: Picture): void {
    const before = this.picture;
    this.picture = picture;
    if (this.history.add(picture)) this.#loadedAt = -Infinity;
    else if (before && !this.timeline.follow(before, picture, this.history.latest ?? { p50: null, p99: null })) this.#loadedAt = -Infinity;
    if (picture.uptime_us / 1e6 - this.#loadedAt >= REFRESH) void this.#load();
    if (!this.isPaused) this.onChange();
  }

  pause(isPaused: boolean): void {
    this.isPaused = isPaused;
    this.onChange();
  }

  async #load(): Promise<void> {
    if (this.#loading || !this.picture) return;
    const range = this.#range;
    this.#loading = true;
    this.#loadedAt = this.picture.uptime_us / 1e6;
    try {
      this.timeline.load(await readHistory(range), range);
    } catch {
      // The stream says what is wrong with the server; with the next picture it is tried again.
      this.#loadedAt = -Infinity;
    } finally {
      this.#loading = false;
    }
    // Another range was chosen meanwhile.
    if (range !== this.#range) return this.#load();
    const isNew = range !== this.#shown;
    this.#shown = range;
    if (!this.isPaused || isNew) this.onChange();
  }
}
