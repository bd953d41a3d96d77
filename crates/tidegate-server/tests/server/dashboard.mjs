// The dashboard in a real Chromium: what a person would do, and what the page must never do.
//
// node dashboard.mjs URL-OF-A-SERVER-WITH-A-TOKEN TOKEN URL-OF-AN-OPEN-SERVER BINARY FOLDER
//
// PLAYWRIGHT names the folder that playwright-core is installed in, AXE the file of axe-core; SCREENSHOTS, if set, a folder for pictures.

import assert from "node:assert/strict";
import { join } from "node:path";
import { isSmall, keepsNoPersonOut } from "./dashboard/access.mjs";
import { TIMEOUT, ask, browser, check, guarded, open, shown, token, visit } from "./dashboard/browser.mjs";
import { drillsDown, tellsAllOfARule } from "./dashboard/drill.mjs";
import { figuresAreTrue, fitsAPhone, idleServerSaysWhatToTry, startsFull } from "./dashboard/figures.mjs";
import { showsAllInstances } from "./dashboard/instances.mjs";
import { appliesAndRollsBack, completesWhatIsTyped, followsItsFile, saysWhatAPolicyWouldRefuse } from "./dashboard/policy.mjs";
import { offersWhatTheTokenMayDo } from "./dashboard/rights.mjs";

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

  const held = { key: "browser-bob", limit: "in-flight 2 for 60s", id: "call-1" };
  assert.equal(await ask(guarded, "reserve", held), 200);
  const reservation = page.locator("#reservations tbody", { hasText: "browser-bob" });
  await reservation.getByText("call-1").waitFor();
  if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, "held.png"), fullPage: true });
  assert.equal(await ask(guarded, "release", held), 200);
  await reservation.waitFor({ state: "detached" });

  // Without the token a key stays as it is.
  await row.getByRole("link", { name: "browser-alice" }).click();
  await page.getByText(/^Refused now by everyone/).waitFor();
  await page.evaluate(() => sessionStorage.clear());
  const reset = async () => {
    await page.locator("#says").getByRole("button", { name: "Reset" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("a test");
    await page.keyboard.press("Enter");
  };
  await reset();
  await page.getByRole("dialog", { name: "Sign in" }).waitFor();
  await shown(page, "asks for a token");
  assert.equal(await check(guarded, { key: "browser-alice", cost: 20 }), 429);
  await page.fill("#token", token);
  await page.click("#give-token");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.getByText(/^Refused now by everyone/).waitFor();
  await reset();
  await shown(page, "Reset everyone, 20 remaining");
  assert.equal(await check(guarded, { key: "browser-alice", cost: 20 }), 200);

  assert.deepEqual(strangers, [], "no other server is asked");
  assert.ok(!addresses.some((address) => address.includes(token)), "the token is in no address");
  assert.ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage }) + location.href)).includes(token));
  assert.ok(complaints.every((text) => text.includes("401")), complaints.join("\n"));
}

/** A server on loopback without a token: the playground, the keyboard. */
async function withoutToken() {
  const { page, complaints, strangers } = await visit(open);
  await page.getByText("Admitting").first().waitFor();

  await page.click('nav a[href="#/playground"]');
  await page.locator("#play-outcome", { hasText: "decided five times" }).waitFor();
  const strips = page.locator(".strip");
  assert.equal(await strips.count(), 5);
  // Twice the limit across a boundary, which the log does not let happen.
  await page.locator('[data-algorithm="fixed-window"]', { hasText: "up to 20 within 1 s" }).waitFor();
  await page.locator('[data-algorithm="sliding-log"]', { hasText: "up to 10 within 1 s" }).waitFor();
  // What a bucket admits by design is no error.
  const kind = (algorithm) => page.locator(`[data-algorithm="${algorithm}"] .worst`).getAttribute("data-kind");
  assert.deepEqual([await kind("token-bucket"), await kind("fixed-window"), await kind("sliding-log")], ["burst", "over", null]);
  const coral = await page.locator('[data-algorithm="fixed-window"] .worst').evaluate((words) => getComputedStyle(words).color);
  assert.notEqual(await page.locator('[data-algorithm="token-bucket"] .worst').evaluate((words) => getComputedStyle(words).color), coral);
  await page.fill("#play-words", "constant nonsense");
  await page.click("#play-run");
  await page.locator("#play-outcome.problem").waitFor();
  assert.equal(await strips.count(), 0, "the result of another run is gone");
  assert.ok(complaints.every((text) => text.includes("400")), complaints.join("\n"));
  complaints.length = 0;
  await page.fill("#play-words", "poisson 5/s");
  await page.click("#play-run");
  await page.locator("#play-outcome", { hasText: "decided five times" }).waitFor();

  // Two classes are two lanes of each algorithm.
  await page.selectOption("#play-shape", "classes");
  await page.click("#play-run");
  await page.locator('[data-algorithm="token-bucket"]', { hasText: "floor 50%" }).locator(".worst:not(:empty)").waitFor();
  assert.equal(await strips.count(), 10);

  await byKeyboard(page);
  await inBothThemes(page);
  assert.deepEqual(strangers, [], "no other server is asked");
  assert.deepEqual(complaints, [], "the console is silent");
}

/** Tab goes through all that can be done, and one sees where it is. */
async function byKeyboard(page) {
  for (let asked = 0; asked < 5; asked += 1) await check(open, { key: "browser-bob", cost: 9 });
  await page.click('nav a[href="#/"]');
  await page.reload();
  await page.locator("#recent-refusals tbody", { hasText: "browser-bob" }).waitFor();
  const seen = [];
  for (let tab = 0; tab < 30 && !seen.includes("browser-bob"); tab += 1) {
    await page.keyboard.press("Tab");
    const [name, outline] = await page.evaluate(() => {
      const element = document.activeElement;
      return [element.textContent.trim() || element.id, getComputedStyle(element).outlineStyle];
    });
    assert.notEqual(outline, "none", `one sees that ${name} has the focus`);
    seen.push(name);
  }
  for (const wanted of ["Skip to the content", "Overview", "Policy", "Audit", "Playground", "search", "Sign in", "Theme", "15 min", "Pause", "everyone", "browser-bob"]) {
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

/** A run that is begun while another is drawn has the last word. */
async function oneRunAfterTheOther() {
  const { page } = await visit(open, { reducedMotion: "no-preference" });
  await page.getByText("Admitting").first().waitFor();
  await page.click('nav a[href="#/playground"]');
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
  page.setDefaultTimeout(TIMEOUT);
  await page.goto(guarded);
  await page.getByRole("dialog").waitFor();
  await page.fill("#token", token);
  await page.click("#give-token");
  await page.getByText("Admitting").first().waitFor();
  await page.click("#theme");
  assert.equal(await page.locator("#theme").innerText(), "Theme: light");
}

const steps = [
  withToken,
  withoutToken,
  oneRunAfterTheOther,
  withoutStorage,
  startsFull,
  figuresAreTrue,
  idleServerSaysWhatToTry,
  fitsAPhone,
  drillsDown,
  tellsAllOfARule,
  completesWhatIsTyped,
  saysWhatAPolicyWouldRefuse,
  appliesAndRollsBack,
  followsItsFile,
  offersWhatTheTokenMayDo,
  showsAllInstances,
  keepsNoPersonOut,
  isSmall,
];
for (const step of steps) {
  const began = Date.now();
  await step();
  console.log(`${step.name}: ${Date.now() - began} ms`);
}
await browser.close();
