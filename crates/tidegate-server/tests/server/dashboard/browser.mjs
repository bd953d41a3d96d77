// A Chromium whose pages are watched, and servers for it.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { join } from "node:path";

const { chromium } = createRequire(join(process.env.PLAYWRIGHT, "package.json"))("playwright-core");

/** Milliseconds after which a test hangs; all that it waits for comes long before. */
export const TIMEOUT = 300_000;

export const [guarded, token, open, binary, folder] = process.argv.slice(2);

export const browser = await chromium.launch({
  timeout: TIMEOUT,
  executablePath: process.env.CHROMIUM,
  args: [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});

/** A page that is watched: every request, every word on the console. It may also ask these servers. */
export async function visit(url, options = {}, others = []) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT);
  // Messages go after a while, which may be before one looks.
  await page.addInitScript(() => {
    window.toasts = [];
    const note = (node) => node.classList?.contains("toast") && window.toasts.push(node.textContent);
    const watcher = new MutationObserver((changes) => changes.forEach(({ addedNodes }) => addedNodes.forEach(note)));
    watcher.observe(document, { childList: true, subtree: true });
  });
  const [complaints, strangers, addresses] = [[], [], []];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await context.route("**/*", (route) => {
    const asked = route.request().url();
    addresses.push(asked);
    if ([url, ...others].some((known) => new URL(asked).origin === new URL(known).origin)) return route.continue();
    strangers.push(asked);
    return route.abort();
  });
  const response = await page.goto(url);
  return { page, response, complaints, strangers, addresses };
}

export const check = (url, request) => ask(url, "check", request);

export async function ask(url, call, request) {
  const response = await fetch(new URL(`/v1/${call}`, url), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  return response.status;
}

/** Waits until a message has been shown. */
export const shown = (page, text) => page.waitForFunction((text) => window.toasts.some((toast) => toast.includes(text)), text);

/** Waits until a condition of the server holds. */
export async function until(condition) {
  const end = Date.now() + TIMEOUT;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`still not so: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export const getJson = async (url, path) => (await fetch(new URL(path, url))).json();

// Each server is ended with this process.
process.setMaxListeners(64);

/** A port that is free now. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** A token with these rights, and its lines of a tokens file. */
export function makeToken(name, rights) {
  const { stdout, stderr } = spawnSync(binary, ["token", "--name", name, "--rights", rights], { encoding: "utf8" });
  return { token: stderr.trim().split(/\s+/).at(-1), lines: stdout };
}

/** A server of our own, and where it is; without a policy file, it has the built-in one. */
export async function serve(address, policy, ...more) {
  const file = policy ? ["--policy", policy] : [];
  const child = spawn(binary, ["serve", "--http", address, ...file, ...more], { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill("SIGKILL"));
  let banner = "";
  for await (const part of child.stdout.iterator({ destroyOnReturn: false })) {
    banner += part;
    if (banner.includes("Try: ")) break;
  }
  const bound = /http +(\S+)/.exec(banner)[1];
  return { child, address: bound, url: `http://${bound}/` };
}
