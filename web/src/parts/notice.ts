/** Words for those who do not look at the screen, and short messages for those who do. */

import { byId, h, say } from "../dom.ts";

/** How long a message stays, in milliseconds. */
const SHOWN = 6_000;

/** Says something politely, and shows it for a while. */
export function notify(text: string, kind: "good" | "bad" = "good"): void {
  announce(text);
  const message = h("p", { class: `toast ${kind}`, "aria-hidden": "true" }, text);
  const place = byId("toasts");
  place.append(message);
  // More than a few at a time are read by nobody.
  while (place.childElementCount > 3) place.firstElementChild?.remove();
  setTimeout(() => message.remove(), SHOWN);
}

/** Says something to those who cannot see it change. */
export function announce(text: string): void {
  say(byId("announcer"), text);
}
