/** The token: asked for once, kept for as long as the tab is open. */

import { byId, h, say } from "../dom.ts";
import { setToken, token } from "../session.ts";

export class Access {
  readonly #dialog: HTMLDialogElement;
  readonly #why = h("p", { class: "why", id: "token-why" });
  readonly #field = h("input", {
    type: "password",
    id: "token",
    name: "token",
    autocomplete: "off",
    "aria-describedby": "token-why",
  });
  readonly #forget = h("button", { type: "button", class: "quiet", id: "forget-token" }, "Sign out");
  readonly #open = byId("open-token");

  constructor(onChange: () => void) {
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "token-title" }, "Sign in"),
      this.#why,
      h("label", { class: "field" }, "Token", this.#field),
      h("p", { class: "hint" }, "It is kept in this tab until you close it."),
      h(
        "div",
        { class: "controls" },
        h("button", { type: "submit", class: "primary", id: "give-token" }, "Sign in"),
        this.#forget,
        h("button", { type: "button", class: "quiet", onclick: () => this.#dialog.close() }, "Cancel"),
      ),
    );
    this.#dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
    document.body.append(this.#dialog);
    this.#open.addEventListener("click", () => this.ask(""));
    form.addEventListener("submit", () => {
      setToken(this.#field.value.trim() || null);
      this.#show();
      onChange();
    });
    this.#forget.addEventListener("click", () => {
      setToken(null);
      this.#dialog.close();
      this.#show();
      onChange();
    });
    this.#show();
  }

  /** Asks for the token, and says why. */
  ask(why: string): void {
    say(this.#why, why || "Give a token with the right view, or admin to change something: of the server's --tokens file, or its --admin-token.");
    // A token that is being typed stays.
    if (this.#dialog.open) return;
    this.#field.value = "";
    this.#dialog.showModal();
  }

  /** Whose token it is. */
  name(identity: string | null): void {
    this.#open.title = identity && token() ? `Signed in as ${identity}` : "";
  }

  #show(): void {
    say(this.#open, token() ? "Signed in" : "Sign in");
    this.#forget.hidden = token() === null;
    this.#open.classList.toggle("given", token() !== null);
  }
}
