/** Light, dark, or as the system has it. */

import { byId, say } from "../dom.ts";
import { setTheme, showTheme, theme, type Theme } from "../session.ts";

const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const NAMES: Record<Theme, string> = { auto: "auto", light: "light", dark: "dark" };

/** Sets the button up; charts hear of changes by `themechange`. */
export function themeButton(): void {
  const button = byId("theme");
  const show = () => {
    showTheme();
    say(button, `Theme: ${NAMES[theme()]}`);
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    setTheme(NEXT[theme()]);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
