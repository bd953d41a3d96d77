/** What the page remembers: the token for as long as the tab is open, the theme for longer. */

const TOKEN = "tidegate-token";
const THEME = "tidegate-theme";

export function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(value: string | null): void {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

export type Theme = "auto" | "light" | "dark";

export function theme(): Theme {
  const value = localStorage.getItem(THEME);
  return value === "light" || value === "dark" ? value : "auto";
}

export function setTheme(value: Theme): void {
  if (value === "auto") localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, value);
  showTheme();
}

/** Puts the theme on the page. */
export function showTheme(): void {
  const value = theme();
  if (value === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = value;
}
