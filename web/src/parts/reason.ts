/** Asks why, before something is changed: the answer goes to the audit log. */

import { h } from "../dom.ts";

/** Characters that the server keeps. */
const MAX_REASON = 200;

export interface Given {
  reason: string;
  /** How much, where that was asked for. */
  units: number;
}

/** Resolves with what was given, or with null if it was called off. */
export function askReason(title: string, action: string, withUnits: boolean): Promise<Given | null> {
  const reason = h("input", { name: "reason", required: true, maxlength: MAX_REASON, autocomplete: "off", placeholder: "customer called" });
  const units = h("input", { name: "units", type: "number", required: true, min: 1, value: 1, inputmode: "numeric" });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "reason-title" }, title),
    withUnits ? h("label", { class: "field" }, "Units", units) : null,
    h("label", { class: "field" }, "Reason, for the audit log", reason),
    h(
      "div",
      { class: "controls" },
      h("button", { type: "submit", class: "primary", value: "go" }, action),
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "reason-title" }, form);
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      const text = reason.value.trim();
      resolve(dialog.returnValue === "go" && text ? { reason: text, units: units.valueAsNumber || 1 } : null);
    });
  });
}
