/** The stream of pictures, for as long as the page is open: it comes back after every break. */

import { Failure, lines } from "./api.ts";
import type { Picture } from "./types.ts";

export type Link =
  | { state: "connecting" }
  | { state: "live" }
  /** It is tried again by itself. */
  | { state: "lost"; why: string }
  /** Only another token helps, or nothing does. */
  | { state: "refused"; failure: Failure };

/** Milliseconds from a break to the next try: longer each time. */
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 5_000;

export class Feed {
  #stopping = new AbortController();

  constructor(
    private readonly onPicture: (picture: Picture) => void,
    private readonly onLink: (link: Link) => void,
  ) {}

  /** Begins, or begins again with another token. */
  start(): void {
    this.#stopping.abort();
    this.#stopping = new AbortController();
    void this.#run(this.#stopping.signal);
  }

  async #run(signal: AbortSignal): Promise<void> {
    let pause = FIRST_PAUSE;
    this.onLink({ state: "connecting" });
    while (!signal.aborted) {
      let why = "The server closed the stream.";
      try {
        for await (const picture of lines<Picture>("/admin/v1/live/stream", { signal })) {
          if (signal.aborted) return;
          pause = FIRST_PAUSE;
          this.onLink({ state: "live" });
          this.onPicture(picture);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Failure) {
          if (error.isUnauthorized || error.status === 404) {
            this.onLink({ state: "refused", failure: error });
            return;
          }
          why = error.message;
        } else {
          why = "The connection broke.";
        }
      }
      if (signal.aborted) return;
      this.onLink({ state: "lost", why });
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }
}
