/** A command to copy. */

import { h } from "../dom.ts";
import { notify } from "./notice.ts";

export function copied(command: string, name = "Copy"): HTMLElement {
  const text = h("code", {}, command);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      notify("Copied.");
    } catch {
      // Over plain HTTP there is no clipboard: the text is selected instead.
      getSelection()?.selectAllChildren(text);
      notify("Selected: copy it with the keyboard.");
    }
  };
  const scrolls = h("pre", { tabindex: "0", "aria-label": "Command" }, text);
  return h("div", { class: "command" }, scrolls, h("button", { type: "button", class: "quiet", onclick: () => void copy() }, name));
}
