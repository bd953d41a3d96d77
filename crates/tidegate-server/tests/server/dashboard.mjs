// The dashboard in a real Chromium: what a person would do, and what the page must never do.
//
// node dashboard.mjs URL-OF-A-SERVER-WITH-A-TOKEN TOKEN URL-OF-AN-OPEN-SERVER BINARY FOLDER
//
// PLAYWRIGHT names the folder that playwright-core is installed in; SCREENSHOTS, if set, a folder for pictures.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { chromium } = createRequire(join(process.env.PLAYWRIGHT, "package.json"))("playwright-core");
const [guarded, token, open, binary, folder] = process.argv.slice(2);

/** Milliseconds after which a test hangs; all that it waits for comes long before. */
const PATIENCE = 300_000;

const browser = await chromium.launch({
  timeout: PATIENCE,
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

/** A page that is watched: every request, every word on the console. */
async function visit(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
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
    if (new URL(asked).origin === new URL(url).origin) return route.continue();
    strangers.push(asked);
    return route.abort();
  });
  const response = await page.goto(url);
  return { page, response, complaints, strangers, addresses };
}

const check = (url, question) => ask(url, "check", question);

async function ask(url, call, question) {
  const response = await fetch(new URL(`/v1/${call}`, url), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question),
  });
  return response.status;
}

/** Waits until a message has been shown. */
const shown = (page, text) => page.waitForFunction((text) => window.toasts.some((toast) => toast.includes(text)), text);

/** A server that asks for its token: what is shown without it, and what can be done with it. */
async function withToken() {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/toml" };
  const slow = { method: "PUT", headers, body: '[rules.everyone]\nlimit = "20/d"\n' };
  assert.equal((await fetch(new URL("/admin/v1/policy", guarded), slow)).status, 200);
  const { page, response, complaints, strangers, addresses } = await visit(guarded);
  const policy = response.headers()["content-security-policy"];
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]) {
    assert.ok(policy.includes(part), `the page's policy says ${part}: ${policy}`);
  }
  assert.ok(!policy.includes("unsafe"), policy);

  await page.getByRole("dialog").waitFor();
  assert.match(await page.locator("#token-why").innerText(), /asks for a token/);
  await page.fill("#token", "wrong");
  await page.keyboard.press("Enter");
  await page.getByText("The server does not know this token.").first().waitFor();
  assert.equal(await page.locator("#recent-refusals tbody").count(), 0, "nothing is shown to strangers");
  await page.fill("#token", token);
  await page.click("#give-token");
  await page.getByText("Admitting").first().waitFor();
  assert.ok(complaints.every((text) => text.includes("401")), complaints.join("\n"));
  complaints.length = 0;

  for (let asked = 0; asked < 25; asked += 1) await check(guarded, { key: "browser-alice" });
  assert.equal(await check(guarded, { key: "browser-alice" }), 429);
  const row = page.locator("#recent-refusals tbody", { hasText: "browser-alice" });
  await row.waitFor();
  await page.locator("#top-refused", { hasText: "browser-alice" }).waitFor();
  await row.getByRole("button", { name: "Explain" }).click();
  await row.getByText(/everyone refuses a cost of 1/).waitFor();

  const held = { key: "browser-bob", limit: "in-flight 2 for 60s", id: "call-1" };
  assert.equal(await ask(guarded, "reserve", held), 200);
  const reservation = page.locator("#reservations tbody", { hasText: "browser-bob" });
  await reservation.getByText("call-1").waitFor();
  if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, "held.png"), fullPage: true });
  assert.equal(await ask(guarded, "release", held), 200);
  await reservation.waitFor({ state: "detached" });

  // Without the token a key stays as it is.
  await page.evaluate(() => sessionStorage.clear());
  await row.getByRole("button", { name: "Reset" }).click();
  await page.getByRole("dialog").waitFor();
  await shown(page, "asks for a token");
  assert.equal(await check(guarded, { key: "browser-alice", cost: 20 }), 429);
  await page.fill("#token", token);
  await page.click("#give-token");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await row.getByRole("button", { name: "Reset" }).click();
  await shown(page, "browser-alice is as new");
  assert.equal(await check(guarded, { key: "browser-alice", cost: 20 }), 200);

  assert.deepEqual(strangers, [], "nobody else is asked");
  assert.ok(!addresses.some((address) => address.includes(token)), "the token is in no address");
  assert.ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage }) + location.href)).includes(token));
  assert.ok(complaints.every((text) => text.includes("401")), complaints.join("\n"));
}

/** A server on loopback without a token: the policy, the playground, the keyboard. */
async function withoutToken() {
  const { page, complaints, strangers } = await visit(open);
  await page.getByText("Admitting").first().waitFor();

  await page.click('nav a[href="#policy"]');
  await page.waitForFunction(() => document.querySelector("#policy-text").value.includes("[rules.everyone]"));
  await page.fill("#policy-text", '[rules.everyone]\nlimit = "1/fortnight"\n');
  await page.click("#validate");
  await page.getByRole("button", { name: "Line 2, column 9" }).click();
  const cursor = await page.evaluate(() => document.activeElement.selectionStart);
  assert.equal(cursor, "[rules.everyone]\nlimit = ".length, "the cursor is where the mistake is");
  await page.click("#apply");
  await page.getByText("One mistake:").waitFor();
  const text = '[rules.everyone]\nlimit = "3/h"\n';
  await page.fill("#policy-text", text);
  await page.click("#apply");
  await page.getByText("In force now.").waitFor();
  await page.locator("#policy-state", { hasText: "No. 2" }).waitFor();
  assert.equal((await (await fetch(new URL("/admin/v1/policy", open))).json()).text, text);

  await page.click('nav a[href="#playground"]');
  await page.locator("#play-outcome", { hasText: "decided five times" }).waitFor();
  const strips = page.locator(".strip");
  assert.equal(await strips.count(), 5);
  // Twice the limit across a boundary, which the log does not let happen.
  await page.locator('[data-algorithm="fixed-window"]', { hasText: "up to 20 within 1 s" }).waitFor();
  await page.locator('[data-algorithm="sliding-log"]', { hasText: "up to 10 within 1 s" }).waitFor();
  await page.fill("#play-words", "constant nonsense");
  await page.click("#play-run");
  await page.locator("#play-outcome.problem").waitFor();
  assert.ok(complaints.every((text) => text.includes("400")), complaints.join("\n"));
  complaints.length = 0;
  await page.fill("#play-words", "poisson 5/s");
  await page.click("#play-run");
  await page.locator("#play-outcome", { hasText: "decided five times" }).waitFor();

  await byKeyboard(page);
  await inBothThemes(page);
  assert.deepEqual(strangers, [], "nobody else is asked");
  assert.deepEqual(complaints, [], "the console is silent");
}

/** Tab goes through all that can be done, and one sees where it is. */
async function byKeyboard(page) {
  for (let asked = 0; asked < 5; asked += 1) await check(open, { key: "browser-bob" });
  await page.click('nav a[href="#overview"]');
  await page.reload();
  await page.locator("#recent-refusals tbody", { hasText: "browser-bob" }).waitFor();
  const seen = [];
  for (let tab = 0; tab < 20 && !seen.some((name) => name.startsWith("Reset")); tab += 1) {
    await page.keyboard.press("Tab");
    const [name, outline] = await page.evaluate(() => {
      const element = document.activeElement;
      return [element.textContent.trim() || element.id, getComputedStyle(element).outlineStyle];
    });
    assert.notEqual(outline, "none", `one sees that ${name} has the focus`);
    seen.push(name);
  }
  for (const wanted of ["Skip to the content", "Overview", "Policy", "Playground", "Token", "Theme", "Explain", "Reset"]) {
    assert.ok(seen.some((name) => name.startsWith(wanted)), `Tab reaches ${wanted}: ${seen.join(", ")}`);
  }
  // The skip link skips.
  await page.locator(".skip").focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
}

async function inBothThemes(page) {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const theme = page.locator("#theme");
  await theme.click();
  const light = await paper();
  await theme.click();
  assert.notEqual(await paper(), light, "dark is not light");
  await theme.click();
}

/** On a phone nothing is wider than the screen. */
async function onAPhone() {
  const { page, complaints } = await visit(open, { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
  await page.getByText("Admitting").first().waitFor();
  for (const view of ["overview", "policy", "playground"]) {
    await page.click(`nav a[href="#${view}"]`);
    if (view === "playground") await page.locator("#play-outcome", { hasText: "decided five times" }).waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${view} is ${width} wide`);
  }
  assert.deepEqual(complaints, [], "the console is silent");
}

/** A run that is begun while another is drawn has the last word. */
async function oneRunAfterTheOther() {
  const { page } = await visit(open, { reducedMotion: "no-preference" });
  await page.getByText("Admitting").first().waitFor();
  await page.click('nav a[href="#playground"]');
  await page.locator(".strip").first().waitFor();
  let answer = () => {};
  const asked = new Promise((resolve) => (answer = resolve));
  await page.route("**/admin/v1/playground", async (route) => {
    await asked;
    return route.continue();
  });
  await page.fill("#play-words", "constant nonsense");
  await page.click("#play-run");
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 300)));
  assert.equal(await page.locator("#play-outcome").innerText(), "Deciding…");
  answer();
  await page.locator("#play-outcome.problem").waitFor();
}

/** A browser that keeps nothing of a site shows the page all the same. */
async function withoutStorage() {
  const context = await browser.newContext();
  await context.addInitScript(() => {
    const refuse = () => {
      throw new DOMException("Access is denied for this document.", "SecurityError");
    };
    for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { get: refuse });
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(guarded);
  await page.getByRole("dialog").waitFor();
  await page.fill("#token", token);
  await page.click("#give-token");
  await page.getByText("Admitting").first().waitFor();
  await page.click("#theme");
  assert.equal(await page.locator("#theme").innerText(), "Theme: light");
}

/** A policy in a file is shown as it is now, whoever has changed it, and also after the server was away. */
async function asTheFileChanges() {
  const file = join(folder, "policy.toml");
  // As some editors end their lines.
  const write = (limit) => writeFileSync(file, `[rules.everyone]\r\nlimit = "${limit}"\r\n`);
  write("1/h");
  let server = await serve("127.0.0.1:0", file);
  const { page } = await visit(`http://${server.address}/#policy`);
  const shows = (limit) => page.waitForFunction((text) => document.querySelector("#policy-text").value.includes(text), limit);
  await shows("1/h");
  assert.ok(await page.locator("#reload-policy").isDisabled(), "nothing has been typed");
  server.child.kill("SIGKILL");
  await once(server.child, "exit");
  write("2/h");
  server = await serve(server.address, file);
  await shows("2/h");
  write("3/h");
  await shows("3/h");
  // What was typed stays, and one is told.
  await page.fill("#policy-text", "mine");
  write("4/h");
  await page.getByText("Meanwhile another policy is in force").waitFor();
  assert.equal(await page.inputValue("#policy-text"), "mine");
  await page.click("#reload-policy");
  await shows("4/h");
  await page.getByText("Meanwhile another policy is in force").waitFor({ state: "hidden" });
  server.child.kill("SIGKILL");
}

/** A server of our own, and where it is. */
async function serve(address, policy) {
  const child = spawn(binary, ["serve", "--http", address, "--policy", policy], { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill("SIGKILL"));
  let banner = "";
  for await (const part of child.stdout.iterator({ destroyOnReturn: false })) {
    banner += part;
    if (banner.includes("Try: ")) break;
  }
  return { child, address: /http +(\S+)/.exec(banner)[1] };
}

for (const step of [withToken, withoutToken, onAPhone, oneRunAfterTheOther, withoutStorage, asTheFileChanges]) {
  const began = Date.now();
  await step();
  console.log(`${step.name}: ${Date.now() - began} ms`);
}
await browser.close();
