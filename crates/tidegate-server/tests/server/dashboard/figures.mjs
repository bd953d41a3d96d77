// The overview: full from the start, exact, and still while it is paused.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { browser, check, folder, getJson, serve, until, visit } from "./browser.mjs";

const POLICY = `
[rules.orders]
limit = "2/d"
key = ["user"]
candidate = "9/d"
tiers.plan.pro = "5/d"

[rules.trial]
limit = "1/d"
key = ["user"]
shadow = true
`;

const sum = (counts) => counts.reduce((all, count) => all + count, 0);

/** A server that admitted two requests of alice and refused three, as its history says. */
export async function busyServer(name, more = "") {
  const file = join(folder, name);
  writeFileSync(file, POLICY + more);
  const server = await serve("127.0.0.1:0", file);
  for (const expected of [200, 200, 429, 429, 429]) {
    assert.equal(await check(server.url, { attributes: { user: "alice" } }), expected);
  }
  await recorded(server.url, 3);
  return server;
}

const recorded = (url, refused) =>
  until(async () => {
    const { rules } = await getJson(url, "/admin/v1/history?range=15m&rule=orders");
    return rules.length === 1 && sum(rules[0].refused) === refused;
  });

/** All that was decided before the page was opened is on it. */
export async function startsFull() {
  const server = await busyServer("full.toml");
  const { page, complaints } = await visit(server.url);
  const total = page.locator(".flow .total:visible");
  await total.getByText("Last 15 min, by the second: 2 admitted, 3 refused (60%)").waitFor();
  await page.waitForFunction(() => document.querySelector("#rules .above").getAttribute("d").includes("L"));

  // The chart tells each second: by the arrow keys, and under the pointer.
  const [chart, readout] = [page.locator(".flow .chart:visible"), page.locator(".flow .readout:visible")];
  await chart.focus();
  const told = new Map();
  // All five, which may have come in two seconds.
  for (let step = 0; step < 900 && sum([...told.values()].flat()) < 5; step += 1) {
    // The first key shows the latest second.
    await page.keyboard.press(step === 0 ? "ArrowRight" : "ArrowLeft");
    const match = /^(\d\d:\d\d:\d\d)\s+·\s+admitted (\d+)\s+·\s+refused (\d+)$/.exec(await readout.innerText());
    if (match) told.set(match[1], [Number(match[2]), Number(match[3])]);
  }
  assert.deepEqual([0, 1].map((place) => sum([...told.values()].map((counts) => counts[place]))), [2, 3]);
  const box = await chart.boundingBox();
  await page.mouse.move(box.x + box.width - 30, box.y + 40);
  await readout.getByText(/^\d\d:\d\d:\d\d/).waitFor();

  // Another range is another address, and stays after a reload.
  await page.getByRole("link", { name: "1 h", exact: true }).click();
  await total.getByText("Last 1 h, by the minute").waitFor();
  assert.ok(page.url().endsWith("#/?range=1h"), page.url());
  await page.reload();
  await total.getByText("Last 1 h, by the minute").waitFor();
  await page.getByRole("link", { name: "5 min", exact: true }).click();
  await total.getByText("Last 5 min, by the second").waitFor();

  // Paused, the figures stay, while the server goes on.
  await page.getByRole("button", { name: "Pause" }).click();
  const before = await total.innerText();
  assert.equal(await check(server.url, { attributes: { user: "alice" } }), 429);
  await recorded(server.url, 4);
  for (let seconds = 0; seconds < 2; seconds += 1) {
    const uptime = await page.locator("#fact-uptime").innerText();
    await page.waitForFunction((uptime) => document.querySelector("#fact-uptime").innerText !== uptime, uptime);
  }
  assert.equal(await total.innerText(), before);
  await page.getByRole("button", { name: "Pause" }).click();
  await total.getByText("4 refused").waitFor();
  assert.deepEqual(complaints, [], "the console is silent");
  server.child.kill("SIGKILL");
}

/** What a shadow rule would refuse does not look like a refusal, and what is always zero is not shown. */
export async function figuresAreTrue() {
  const server = await busyServer("true.toml");
  const { page } = await visit(server.url);
  const row = (name) => page.locator("#rules tbody", { has: page.getByRole("link", { name, exact: true }) });
  const refused = (name) => row(name).locator("td").nth(4);
  await refused("orders").getByText("3", { exact: true }).waitFor();
  assert.equal(await refused("trial").innerText(), "4");
  const colour = (element) => element.evaluate((cell) => getComputedStyle(cell).color);
  const ink = await page.evaluate(() => getComputedStyle(document.body).color);
  assert.notEqual(await colour(refused("orders")), ink);
  assert.equal(await colour(refused("trial")), ink);
  await row("trial").getByText("1/day by user · shadow").waitFor();
  const headings = page.locator("#rules thead th:visible");
  assert.deepEqual((await headings.allInnerTexts()).slice(2), ["admitted / s", "refused / s", "admitted", "refused"]);
  server.child.kill("SIGKILL");
}

/** Before the first request there is a command to try; it works. */
export async function idleServerSaysWhatToTry() {
  const file = join(folder, "idle.toml");
  writeFileSync(file, '[rules.everyone]\nlimit = "9/d"\n');
  const server = await serve("127.0.0.1:0", file);
  const { page } = await visit(server.url);
  const command = await page.locator(".idle code").innerText();
  assert.equal(command, `curl --json '{"key":"alice"}' ${server.url}v1/check`);
  const [, body, url] = /--json '(.*)' (\S+)$/.exec(command);
  const headers = { "content-type": "application/json" };
  assert.equal((await fetch(url, { method: "POST", headers, body })).status, 200);
  await page.locator(".idle").waitFor({ state: "hidden" });
  server.child.kill("SIGKILL");
}

/** On a phone the overview is at most four screens, and nothing is wider than one. */
export async function fitsAPhone() {
  const more = Array.from({ length: 12 }, (_, number) => `[rules.more-${number}]\nlimit = "9/s"\nkey = ["user"]\n`);
  const server = await busyServer("phone.toml", more.join(""));
  for (let user = 0; user < 30; user += 1) {
    for (let asked = 0; asked < 3; asked += 1) await check(server.url, { attributes: { user: `user-${user}@example.org` } });
  }
  const context = await browser.newContext({ viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  await page.goto(server.url);
  await page.locator("#top-refused tbody").nth(9).waitFor();
  await page.locator("#recent-refusals tbody").nth(7).waitFor();
  const [width, height] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
  assert.ok(width <= 390 && height <= 4 * 844, `${width} x ${height}`);
  await page.getByRole("button", { name: "Show all 15 rules" }).click();
  await page.getByRole("link", { name: "more-11" }).waitFor();
  // The views stay in reach, and what a link leads to begins below them.
  await page.evaluate(() => scrollTo(0, 1_000));
  const policy = page.getByRole("link", { name: "Policy", exact: true });
  const { y } = await policy.boundingBox();
  assert.ok(y >= 0 && y < 844, `the views are at ${y}`);
  await policy.click();
  const title = page.getByRole("heading", { name: "Policy", exact: true });
  await title.waitFor();
  const [bar, top] = await page.evaluate(() => [document.querySelector(".bar"), document.querySelector("#policy-title")].map((element) => element.getBoundingClientRect()));
  assert.ok(top.top >= bar.bottom, `the title at ${top.top} is below the bar, which ends at ${bar.bottom}`);
  server.child.kill("SIGKILL");
}
