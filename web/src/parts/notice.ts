/** Announcements for screen readers, and short messages on the screen. */

import { byId, h, say } from "../dom.ts";

/** How long a message stays, in milliseconds. */
const SHOWN = 6_000;

/** Says something politely, and shows it for a while. */
export function notify(text: string, kind: "good" | "bad" = "good"): void {
  announce(text);
  const message = h("p", { class: `toast ${kind}`, "aria-hidden": "true" }, text);
  const place = byId("toasts");
  place.append(message);
  // Only a few at a time can be read.
  while (place.childElementCount > 3) place.firstElementChild?.remove();
  setTimeout(() => message.remove(), SHOWN);
}

/** Announces a change to screen readers. */
export function announce(text: string): void {
  say(byId("announcer"), text);
}
