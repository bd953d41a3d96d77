/** The strip at the top: the state of the server, its store and its policy. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Link } from "../feed.ts";
import type { Picture } from "../types.ts";

export class Status {
  readonly element: HTMLElement;
  readonly #state = h("p", { class: "state", id: "state" }, "Connecting…");
  readonly #facts: Record<"store" | "keys" | "breaker" | "policy" | "uptime" | "connections", HTMLElement>;
  readonly #restriction = h("p", { class: "restriction", id: "restriction", hidden: true });
  #link: Link = { state: "connecting" };
  #picture: Picture | null = null;

  constructor() {
    const fact = (name: string, id: string) => {
      const value = h("dd", { id: `fact-${id}` }, "–");
      return { value, entry: h("div", {}, h("dt", {}, name), value) };
    };
    const entries = {
      store: fact("store", "store"),
      breaker: fact("breaker", "breaker"),
      keys: fact("keys", "keys"),
      policy: fact("policy", "policy"),
      connections: fact("connections", "connections"),
      uptime: fact("uptime", "uptime"),
    };
    this.#facts = {
      store: entries.store.value,
      breaker: entries.breaker.value,
      keys: entries.keys.value,
      policy: entries.policy.value,
      connections: entries.connections.value,
      uptime: entries.uptime.value,
    };
    const list = h("dl", { class: "facts" }, ...Object.values(entries).map(({ entry }) => entry));
    this.element = h("section", { class: "status", "aria-label": "State of the server" }, this.#state, list, this.#restriction);
  }

  /** What the token may not do. */
  restrict(words: string): void {
    say(this.#restriction, words);
    this.#restriction.hidden = words === "";
  }

  /** What the state is in a word or two. */
  get words(): string {
    return this.#state.textContent ?? "";
  }

  showLink(link: Link): void {
    this.#link = link;
    this.#judge();
  }

  show(picture: Picture): void {
    this.#picture = picture;
    const { store, policy } = picture;
    say(this.#facts.store, store.reachable ? store.kind : `${store.kind}, unreachable`);
    say(this.#facts.breaker, store.breaker ?? "");
    if (this.#facts.breaker.parentElement) this.#facts.breaker.parentElement.hidden = store.breaker === null;
    const room = store.max_keys === null ? "" : ` of ${format.count(store.max_keys)}`;
    say(this.#facts.keys, store.keys === null ? "in the store" : `${format.count(store.keys)}${room}`);
    const name = policy.file?.split("/").at(-1) ?? (policy.generation > 1 ? "applied by API" : "built in");
    say(this.#facts.policy, `${name}, version ${policy.generation}`);
    if (policy.file) this.#facts.policy.title = policy.file;
    say(this.#facts.connections, format.count(picture.connections));
    say(this.#facts.uptime, format.duration(Math.floor(picture.uptime_us / 1e6) * 1e6));
    this.#judge();
  }

  #judge(): void {
    const [kind, text] = this.#verdict();
    this.element.dataset["kind"] = kind;
    say(this.#state, text);
  }

  #verdict(): ["good" | "warn" | "bad" | "idle", string] {
    const [link, picture] = [this.#link, this.#picture];
    if (link.state === "refused") return ["idle", link.failure.isUnauthorized ? "Sign in" : "No admin API"];
    if (link.state === "lost") return ["bad", "Connection lost"];
    return picture ? verdictOf(picture) : ["idle", "Connecting…"];
  }
}

/** The state of a server that answers, and how good that is. */
export function verdictOf(picture: Picture): ["good" | "warn" | "bad", string] {
  if (picture.leaving) return ["warn", "Shutting down"];
  if (!picture.store.reachable) return ["bad", "Store unreachable"];
  if (picture.policy.errors) return ["warn", "Policy file invalid"];
  return ["good", "Admitting"];
}
