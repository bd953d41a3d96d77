/** The policy: what is active, an editor with a diff, and the versions to go back to. */

import { Failure, applyPolicy, readPolicy, readSchema, readVersions, tryPolicy, validatePolicy } from "../api.ts";
import { h, say } from "../dom.ts";
import * as format from "../format.ts";
import type { Live } from "../live.ts";
import { difference } from "../parts/difference.ts";
import { Editor } from "../parts/editor.ts";
import { notify } from "../parts/notice.ts";
import { TrialReport } from "../parts/trial.ts";
import { Verdict } from "../parts/verdict.ts";
import type { Route } from "../route.ts";
import type { PolicyError, PolicyDocument, PolicyVersion } from "../types.ts";
import { Versions } from "./versions.ts";
import { explainFailure, type View } from "./view.ts";

export class PolicyView implements View {
  readonly title = "Policy";
  readonly element: HTMLElement;
  readonly #state = h("p", { class: "policy-state", id: "policy-state" });
  readonly #broken = h("pre", { class: "errors-of-file", hidden: true, tabindex: "0" });
  readonly #text = new Editor(() => this.#changed());
  readonly #format = h("select", { id: "policy-format" }, h("option", { value: "toml" }, "TOML"), h("option", { value: "yaml" }, "YAML"));
  readonly #diff = h("div", { id: "policy-diff" });
  readonly #validate = h("button", { type: "button", id: "validate" }, "Validate");
  readonly #apply = h("button", { type: "button", id: "apply", class: "primary", "data-needs": "admin" }, "Apply until restart");
  readonly #try = h("button", { type: "button", id: "try" }, "What would this refuse?");
  readonly #trial = new TrialReport();
  readonly #again = h("button", { type: "button", class: "quiet", id: "reload-policy" }, "Discard changes");
  readonly #hint = h("span", { class: "hint", id: "policy-hint" });
  readonly #verdict = new Verdict((error) => this.#go(error));
  readonly #versions = new Versions();
  #known: PolicyVersion[] = [];
  /** The active text, as the editor shows it: its line ends may be others. */
  #active: string | null = null;
  /** Which policy that is, and which is active: by number and time, as another process counts anew. */
  #loaded = "";
  #inForce = "";
  /** A version that the address asks for. */
  #wanted: number | null = null;
  #route: Route | null = null;

  constructor(
    private readonly live: Live,
    private readonly onUnauthorized: () => void,
  ) {
    const controls = [h("label", { class: "field inline" }, "Format", this.#format), this.#validate, this.#try, this.#apply, this.#again, this.#hint];
    const panel = h(
      "section",
      { class: "panel policy", "aria-labelledby": "policy-title" },
      h("header", {}, h("h2", { id: "policy-title" }, "Policy"), this.#state),
      this.#broken,
      h("label", { for: "policy-text", class: "unseen" }, "The policy's text"),
      this.#text.element,
      this.#diff,
      h("div", { class: "controls" }, ...controls),
      this.#verdict.element,
      this.#trial.element,
    );
    this.element = h("div", { class: "column" }, panel, this.#versions.element);
    this.#format.addEventListener("input", () => (this.#text.format = this.#chosen));
    this.#text.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void this.#check();
    });
    this.#try.addEventListener("click", () => void this.#tryOut());
    this.#validate.addEventListener("click", () => void this.#check());
    this.#apply.addEventListener("click", () => void this.#applyText());
    this.#again.addEventListener("click", () => void this.#load(true));
  }

  open(route: Route): void {
    // After signing in again, what was typed stays.
    if (route !== this.#route) this.#wanted = route.view === "policy" ? route.version : null;
    this.#route = route;
    this.show();
    this.#showWanted();
  }

  show(): void {
    const { picture } = this.live;
    if (!picture) return;
    const { policy, time_us } = picture;
    const where = policy.file ? `from ${policy.file}` : policy.generation > 1 ? "applied by API, until restart" : "built in";
    const active = format.duration(Math.max(0, Math.floor((time_us - policy.since_us) / 1e6)) * 1e6).replace("0 µs", "0 s");
    say(this.#state, `Version ${policy.generation} ${where}, active for ${active}`);
    this.#broken.hidden = policy.errors === null;
    say(this.#broken, policy.errors ? `The file has errors. Version ${policy.generation} stays active:\n\n${policy.errors}` : "");
    // The server follows a file: what is applied here would not last.
    const isFile = policy.file !== null;
    this.#apply.hidden = this.#validate.hidden = this.#try.hidden = this.#again.hidden = isFile;
    this.#text.field.readOnly = this.#format.disabled = isFile;
    this.#inForce = `${policy.generation} ${policy.since_us}`;
    if (this.#inForce !== this.#loaded && this.#isUntouched) void this.#load(false);
    const others = this.#inForce === this.#loaded ? "" : "Another policy is active now: discard your changes to see it. ";
    say(this.#hint, others + (isFile ? "Read-only: the file decides. Change the file, and the server applies it." : "Ctrl+Space completes, Ctrl+Enter validates."));
  }

  /** Takes the text from the server; what was typed meanwhile stays, unless it is to be discarded. */
  async #load(discard: boolean): Promise<void> {
    this.#loaded = this.#inForce;
    if (discard) this.#wanted = null;
    try {
      const [policy, versions] = await Promise.all([readPolicy(), readVersions()]);
      this.#known = versions;
      void this.#loadSchema();
      this.#versions.show(versions);
      if (discard || this.#isUntouched) this.#take(policy);
      this.#showWanted();
    } catch (error) {
      // Without an answer it is asked for again; without the token it is not.
      if (!(error instanceof Failure && error.isUnauthorized)) this.#loaded = "";
      this.#verdict.bad(explainFailure(error, this.onUnauthorized));
    }
  }

  /** What can be completed; without an answer there are no completions. */
  async #loadSchema(): Promise<void> {
    if (this.#text.schema || this.#text.field.readOnly) return;
    try {
      this.#text.schema = await readSchema();
    } catch {
      // The editor is of use without it.
    }
  }

  #take({ text, format }: PolicyDocument): void {
    const before = this.#text.value;
    this.#put({ text, format });
    this.#active = this.#text.value;
    if (this.#active !== before) this.#verdict.clear();
    this.#changed();
  }

  /** Puts the version that was asked for into the editor: the diff says what applying it would change. */
  #showWanted(): void {
    const version = this.#known.find(({ generation }) => generation === this.#wanted);
    if (!version || this.#active === null) return;
    this.#wanted = null;
    this.#put(version);
    this.#verdict.good(`Version ${version.generation} is in the editor. The lines above say what it would change.`);
    this.#changed();
  }

  #put({ text, format }: Pick<PolicyDocument, "text" | "format">): void {
    this.#format.value = format;
    this.#text.format = format;
    this.#text.value = text;
  }

  get #isUntouched(): boolean {
    return this.#active === null ? this.#text.value === "" : this.#text.value === this.#active;
  }

  #changed(): void {
    this.#again.disabled = this.#isUntouched;
    // What was said is of another text.
    this.#trial.clear();
    const lines = this.#active === null ? null : difference(this.#active, this.#text.value);
    this.#diff.replaceChildren(...(lines ? [h("h3", {}, "Changes to the active policy"), lines] : []));
  }

  get #chosen(): PolicyDocument["format"] {
    return this.#format.value === "yaml" ? "yaml" : "toml";
  }

  async #check(): Promise<boolean> {
    try {
      const { errors } = await validatePolicy(this.#text.value, this.#chosen);
      if (errors.length > 0) this.#verdict.errors(errors);
      else this.#verdict.good("No errors. Keys keep what they have used.");
      return errors.length === 0;
    } catch (error) {
      this.#verdict.bad(explainFailure(error, this.onUnauthorized));
      return false;
    }
  }

  async #tryOut(): Promise<void> {
    const text = this.#text.value;
    this.#try.disabled = true;
    try {
      const tried = await tryPolicy(text, this.#chosen);
      if (text !== this.#text.value) return;
      if ("errors" in tried && tried.errors.length > 0) return this.#verdict.errors(tried.errors);
      this.#verdict.clear();
      if ("requests" in tried) this.#trial.show(tried);
    } catch (error) {
      this.#verdict.bad(explainFailure(error, this.onUnauthorized));
    } finally {
      this.#try.disabled = false;
    }
  }

  async #applyText(): Promise<void> {
    const [text, chosen] = [this.#text.value, this.#chosen];
    if (!(await this.#check())) return;
    try {
      const { changes } = await applyPolicy(text, chosen);
      this.#active = text;
      this.#changed();
      this.#verdict.good(changes.length > 0 ? "Active now. Changed:" : "Active now. No rule changed.", changes);
      notify("The policy is active.");
    } catch (error) {
      this.#verdict.bad(explainFailure(error, this.onUnauthorized));
    }
  }

  /** Puts the cursor where the error is. */
  #go({ line, column }: PolicyError): void {
    this.#text.go(line ?? 1, column ?? 1);
  }
}
