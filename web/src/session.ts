/** What the page remembers: the token for as long as the tab is open, the theme for longer. */

const TOKEN = "tidegate-token";
const THEME = "tidegate-theme";

/** What the browser does not keep: it may be told to keep nothing of a site. */
const unkept = new Map<string, string>();

function read(storage: () => Storage, name: string): string | null {
  try {
    return storage().getItem(name);
  } catch {
    return unkept.get(name) ?? null;
  }
}

function write(storage: () => Storage, name: string, value: string | null): void {
  try {
    if (value) storage().setItem(name, value);
    else storage().removeItem(name);
  } catch {
    if (value) unkept.set(name, value);
    else unkept.delete(name);
  }
}

export function token(): string | null {
  return read(() => sessionStorage, TOKEN);
}

export function setToken(value: string | null): void {
  write(() => sessionStorage, TOKEN, value);
}

export type Theme = "auto" | "light" | "dark";

export function theme(): Theme {
  const value = read(() => localStorage, THEME);
  return value === "light" || value === "dark" ? value : "auto";
}

export function setTheme(value: Theme): void {
  write(() => localStorage, THEME, value === "auto" ? null : value);
  showTheme();
}

/** Puts the theme on the page. */
export function showTheme(): void {
  const value = theme();
  if (value === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = value;
}
