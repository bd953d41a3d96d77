/** The other servers: each is read by itself, with the page's token, and one that does not answer stops no other. */

import { Failure, readInstances, readLiveOf } from "./api.ts";
import { History } from "./history.ts";
import type { Picture } from "./types.ts";

/** Milliseconds from one reading of an instance to the next. */
const PAUSE = 2_000;

/** A browser does not tell these apart. */
const NO_ANSWER = "No answer: it is away, or does not list this page with --dashboard-instance.";

/** What is known of one instance. */
export interface Instance {
  /** Null is the server that the page came from. */
  origin: string | null;
  picture: Picture | null;
  history: History;
  /** Why there is no picture now. */
  problem: string | null;
}

export class Instances {
  readonly others: Instance[] = [];
  #reading = new AbortController();

  /** Asks which there are; nothing is read of them yet. */
  async load(): Promise<void> {
    const { instances } = await readInstances();
    const origins = instances.filter((origin) => origin !== location.origin);
    if (origins.join() === this.others.map(({ origin }) => origin).join()) return;
    this.others.splice(0, this.others.length, ...origins.map((origin) => ({ origin, picture: null, history: new History(), problem: null })));
  }

  /** Reads them all, again and again, until it is stopped. */
  start(onChange: () => void): void {
    this.stop();
    this.#reading = new AbortController();
    for (const instance of this.others) void follow(instance, this.#reading.signal, onChange);
  }

  stop(): void {
    this.#reading.abort();
  }
}

async function follow(instance: Instance, signal: AbortSignal, onChange: () => void): Promise<void> {
  while (!signal.aborted) {
    try {
      const picture = await readLiveOf(instance.origin ?? "", signal);
      instance.history.add(picture);
      instance.picture = picture;
      instance.problem = null;
    } catch (error) {
      if (signal.aborted) return;
      instance.history.clear();
      instance.picture = null;
      instance.problem = error instanceof Failure && error.status > 0 ? error.message : NO_ANSWER;
    }
    if (signal.aborted) return;
    onChange();
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}
