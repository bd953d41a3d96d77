/** All rules at a glance: rates, refusals, latency, store. */

import { h } from "../dom.ts";
import type { Live } from "../live.ts";
import { curl } from "../request.ts";
import { address } from "../route.ts";
import { token } from "../session.ts";
import { copied } from "../parts/copied.ts";
import { Crossings } from "./crossings.ts";
import { Flow } from "./flow.ts";
import { Latency } from "./latency.ts";
import { Refusals } from "./refusals.ts";
import { Reservations } from "./reservations.ts";
import { Rules } from "./rules.ts";
import { Store } from "./store.ts";
import { Top } from "./top.ts";
import type { View } from "./view.ts";

/** Refusals that are shown until more are asked for. */
const FEW = 8;

export class Overview implements View {
  readonly title = "";
  readonly element: HTMLElement;
  readonly #flow: Flow;
  readonly #rules: Rules;
  readonly #refusals = new Refusals("recent-refusals", "Recent refusals", "No request has been refused yet. The latest refusal of each key is listed here; the playground shows when a limit refuses.", FEW);
  readonly #latency: Latency;
  readonly #store = new Store();
  readonly #top = new Top("top-refused");
  readonly #reservations = new Reservations();
  readonly #crossings = new Crossings();
  readonly #idle = h("section", { class: "panel idle", "aria-label": "First request", hidden: true });

  constructor(private readonly live: Live) {
    this.#flow = new Flow(live, "Requests");
    this.#rules = new Rules(live);
    this.#latency = new Latency(live);
    const columns = [
      [this.#idle, this.#flow.element, this.#rules.element, this.#refusals.element],
      [this.#latency.element, this.#store.element, this.#top.element, this.#reservations.element, this.#crossings.element],
    ];
    this.element = h("div", { class: "board" }, ...columns.map((column) => h("div", { class: "column" }, ...column)));
  }

  show(): void {
    const { picture, history, timeline } = this.live;
    if (!picture) return;
    const addressOf = (range: Live["range"]) => address({ view: "overview", range });
    this.#flow.show({ series: timeline.all(), now: history.latest, addressOf });
    this.#rules.show(picture.rules);
    this.#refusals.show(picture.recent_refusals, picture.time_us);
    this.#latency.show(history.latest ?? { p50: null, p99: null });
    this.#store.show(picture);
    this.#top.show(picture);
    this.#reservations.show(picture);
    this.#crossings.show(picture);
    this.#showIdle(picture.rules.every((rule) => rule.allowed + rule.refused + rule.shadow_allowed + rule.shadow_refused === 0));
  }

  /** Before the first request: a command that makes one. */
  #showIdle(isIdle: boolean): void {
    this.#idle.hidden = !isIdle;
    if (!isIdle || this.#idle.childElementCount > 0) return;
    const command = curl({ key: "alice" }, `${location.origin}/v1/check`, token() !== null);
    this.#idle.append(h("header", {}, h("h2", {}, "No requests yet")), h("p", {}, "Send one from a terminal:"), copied(command));
  }
}
