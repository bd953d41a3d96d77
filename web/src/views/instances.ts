/** All servers side by side, and their sum. */

import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import { quantile, since } from "../history.ts";
import type { Instance, Instances } from "../instances.ts";
import type { Live } from "../live.ts";
import { Rows, rowOf, table } from "../parts/table.ts";
import { verdictOf } from "./status.ts";
import type { View } from "./view.ts";

/** Columns of numbers, in their order. */
const COLUMNS = ["admitted / s", "refused / s", "p50", "p99", "store", "breaker", "keys"] as const;

interface InstanceRow {
  element: HTMLTableSectionElement;
  state: HTMLElement;
  cells: HTMLElement[];
}

export class InstancesView implements View {
  readonly title = "Instances";
  readonly element: HTMLElement;
  readonly #table = table("Instances and their sum", ["Instance", ...COLUMNS.map((name) => `#${name}`)]);
  readonly #rows: Rows<Instance, InstanceRow>;
  readonly #summary = h("p", { class: "hint" });
  readonly #sum = make("All instances");

  constructor(
    private readonly live: Live,
    private readonly instances: Instances,
  ) {
    this.#table.id = "instances";
    this.#table.classList.add("cards");
    this.#sum.element.classList.add("sum");
    this.#rows = new Rows(this.#table, ({ origin }) => origin ?? "", ({ origin }) => make(origin ?? location.origin), update);
    this.element = h(
      "section",
      { class: "panel instances", "aria-labelledby": "instances-title" },
      h("header", {}, h("h2", { id: "instances-title" }, "Instances"), this.#summary),
      this.#table,
    );
  }

  open(): void {
    this.instances.start(() => this.show());
    this.show();
  }

  close(): void {
    this.instances.stop();
  }

  show(): void {
    const { picture, history } = this.live;
    const own: Instance = { origin: null, picture, history, problem: null };
    const all = [own, ...this.instances.others];
    const known = all.filter(({ picture }) => picture !== null);
    const none = "No other instance is configured: start each server with --dashboard-instance ORIGIN.";
    say(this.#summary, all.length === 1 ? none : `${known.length} of ${all.length} answer. Each is read with the token of this page.`);
    this.#rows.show(all);
    const values = [...sums(known), "", "", keysOf(known)];
    this.#sum.cells.forEach((cell, place) => say(cell, values[place] ?? ""));
    say(this.#sum.state, known.length === all.length ? "" : `without ${all.length - known.length} that did not answer`);
    this.#table.append(this.#sum.element);
    // What no instance has is not shown.
    const hasRefused = known.some(({ picture }) => picture?.rules.some(({ refused }) => refused > 0));
    const isEmpty = (column: string) => known.every((instance) => cellsOf(instance)[COLUMNS.findIndex((name) => name === column)] === "–");
    this.#table.classList.toggle("no-3", !hasRefused);
    this.#table.classList.toggle("no-7", isEmpty("breaker"));
    this.#table.classList.toggle("no-8", isEmpty("keys"));
  }
}

function make(name: string): InstanceRow {
  const state = h("span", { class: "limit" });
  const cells = COLUMNS.map((label) => h("td", { class: "number", "data-label": label }));
  return { element: rowOf(h("th", { scope: "row" }, name, state), ...cells), state, cells };
}

function update(row: InstanceRow, instance: Instance): void {
  const { picture, problem, origin } = instance;
  const [kind, words] = picture ? verdictOf(picture) : problem ? (["bad", problem] as const) : (["idle", "Connecting…"] as const);
  row.element.dataset["kind"] = kind;
  say(row.state, origin === null ? `${words} · this server` : words);
  const values = cellsOf(instance);
  row.cells.forEach((cell, place) => say(cell, values[place] ?? ""));
}

/** What the columns say of an instance; nothing of one that does not answer. */
function cellsOf({ picture, history: { latest } }: Instance): string[] {
  if (!picture) return [];
  const { store } = picture;
  const took = (value: number | null | undefined) => (value == null ? "–" : format.duration(value));
  const rates = latest ? [format.rate(latest.allowed), format.rate(latest.refused)] : ["–", "–"];
  return [...rates, took(latest?.p50), took(latest?.p99), store.kind, store.breaker ?? "–", store.keys === null ? "–" : format.count(store.keys)];
}

/** Rates add up; quantiles are those of all requests together. */
function sums(known: Instance[]): string[] {
  const latest = known.flatMap(({ history }) => history.latest ?? []);
  const rate = (of: "allowed" | "refused") => format.rate(latest.reduce((sum, moment) => sum + moment[of], 0));
  const latency = (which: "window" | "end") => known.flatMap(({ history }) => history.latencies?.[which] ?? []);
  const took = since(latency("window"), latency("end"));
  const words = (part: number) => {
    const value = quantile(took, part);
    return value === null ? "–" : format.duration(value);
  };
  return [rate("allowed"), rate("refused"), words(0.5), words(0.99)];
}

/** Keys of memory stores; instances that share a store count it each by itself. */
function keysOf(known: Instance[]): string {
  const counts = known.flatMap(({ picture }) => picture?.store.keys ?? []);
  return counts.length > 0 ? format.count(counts.reduce((sum, count) => sum + count, 0)) : "–";
}
