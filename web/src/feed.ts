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
const MAX_PAUSE = 5_000;

/** Milliseconds without a picture after which a stream is given up: there should be one each second. */
const SILENCE = 10_000;

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
      // A server that is gone need not say so: the network may be cut, or the machine asleep.
      const silence = new Silence(signal);
      try {
        for await (const picture of lines<Picture>("/admin/v1/live/stream", { signal: silence.signal })) {
          if (signal.aborted) return;
          silence.isBroken();
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
          why = silence.signal.aborted ? `The server has said nothing for ${SILENCE / 1_000} seconds.` : "The connection broke.";
        }
      } finally {
        silence.end();
      }
      if (signal.aborted) return;
      this.onLink({ state: "lost", why });
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, MAX_PAUSE);
    }
  }
}

/** Ends a stream that has been silent for too long, or is no longer wanted. */
class Silence {
  readonly #ending = new AbortController();
  readonly #stop = () => this.#ending.abort();
  #timer = setTimeout(this.#stop, SILENCE);

  constructor(private readonly unwanted: AbortSignal) {
    unwanted.addEventListener("abort", this.#stop);
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Something was said: it begins anew. */
  isBroken(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#stop, SILENCE);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.unwanted.removeEventListener("abort", this.#stop);
  }
}
