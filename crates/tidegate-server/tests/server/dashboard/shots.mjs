// Pictures of every view, at three widths, light and dark, of servers with traffic; and how soon the page is painted.
//
// node shots.mjs "" "" "" BINARY FOLDER POLICY REPORT PICTURE
//
// The environment is that of dashboard.mjs. POLICY is the policy of the busy servers, REPORT a page of `tidegate replay`, PICTURE
// an SVG of `tidegate simulate`. ONLY, WIDTHS and COLOURS, if set, name the views, widths and colour schemes to take, with commas.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { TIMEOUT, browser, folder, freePort, serve } from "./browser.mjs";

const [policy, report, picture] = process.argv.slice(7);

const SIZES = [
  [1440, 900],
  [1024, 768],
  [390, 844],
];

/** Milliseconds of traffic before the first picture: the charts have something to show. */
const WARM_UP = Number(process.env.WARM_UP ?? 60_000);
/** Milliseconds after which a picture will not be taken. */
const SHOT_TIMEOUT = 60_000;
/** How much slower the processor is for the first paint. */
const THROTTLE = 4;

const USERS = ["alice", "bob", "carol", "dave", "erin", "mallory", "a-long-user-name-that-goes-on@example.org"];
const pick = (list) => list[Math.floor(Math.random() * list.length)];

/** A request as it comes to the example policy. */
function request() {
  const base = { user: pick(USERS.slice(0, 1 + Math.floor(Math.random() * USERS.length))), ip: `198.51.100.${1 + Math.floor(Math.random() * 9)}`, tenant: pick(["acme", "globex", "initech"]) };
  const order = { ...base, method: "POST", path: "/api/orders", plan: pick(["free", "free", "pro"]), priority: pick(["critical", "normal"]) };
  const others = [
    { ...base, method: "GET", path: "/api/items", agent: pick(["curl", "searchbot/2.1"]) },
    { ...base, method: "POST", path: "/api/chat", priority: "normal" },
  ];
  return Math.random() < 0.6 ? { attributes: order } : { attributes: pick(others), amounts: { tokens: 200 } };
}

async function traffic(url, signal) {
  for (let second = 0; !signal.aborted; second += 0.25) {
    const many = 4 + Math.round(3 * Math.sin(second / 6) + 4 * Math.random());
    const send = () =>
      fetch(new URL("/v1/check", url), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request()) })
        .then((response) => response.text())
        .catch(() => undefined);
    for (let sent = 0; sent < many; sent += 1) void send();
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

async function put(url, text) {
  const response = await fetch(new URL("/admin/v1/policy", url), { method: "PUT", headers: { "content-type": "application/toml" }, body: text });
  if (!response.ok) throw new Error(await response.text());
}

const origins = [];
for (let number = 0; number < 3; number += 1) origins.push(`http://127.0.0.1:${await freePort()}`);
/** The instances read each other with it. */
const TOKEN = "only-for-pictures";
const listed = ["--admin-token", TOKEN, "--anonymous", "check", ...origins.flatMap((origin) => ["--dashboard-instance", origin])];
const at = (origin) => new URL(origin).host;
const busy = await serve(at(origins[0]), policy, ...listed);
const second = await serve(at(origins[1]), policy, ...listed);
// Its policy is not of a file, so that it can be edited.
const editable = await serve("127.0.0.1:0", null);
const idle = await serve("127.0.0.1:0", null);
const guarded = await serve("127.0.0.1:0", null, "--admin-token", TOKEN);
const text = readFileSync(policy, "utf8");
const authorization = `Bearer ${TOKEN}`;
await put(editable.url, text.replace('"100/min burst 20"', '"120/min burst 20"'));
await put(editable.url, text);
const ending = new AbortController();
for (const { url } of [busy, second, editable]) void traffic(url, ending.signal);
const key = { attributes: { user: "alice", path: "/api/orders", method: "POST", plan: "free", tenant: "globex", priority: "normal" } };
const held = { method: "POST", headers: { "content-type": "application/json", authorization }, body: JSON.stringify({ key: "job-7", limit: "in-flight 2 for 1h", id: "call-1" }) };
await fetch(new URL("/v1/reserve", busy.url), held);
await new Promise((resolve) => setTimeout(resolve, WARM_UP));
const reset = { method: "POST", headers: { "content-type": "application/json", authorization }, body: JSON.stringify({ ...key, rule: "orders" }) };
await fetch(new URL("/admin/v1/keys/reset?reason=customer+called", busy.url), reset);

/** Types a stricter limit, at the place of the first. */
async function edit(page) {
  const field = page.locator("#policy-text");
  await page.waitForFunction(() => document.querySelector("#policy-text").value.includes("[rules.orders]"));
  await field.fill(text.replace('limit = "100/min burst 20"', 'limit = "20/min"').replace('free = "10/min"', 'free = "5/min"'));
  await field.press("Control+Home");
}

/** A name, an address, what is there once it has loaded, and what is done then. */
const VIEWS = [
  ["overview", `${busy.url}#/?range=5m`, "#recent-refusals tbody"],
  ["overview-day", `${busy.url}#/?range=24h`, "#recent-refusals tbody"],
  ["idle", idle.url, ".idle code"],
  ["rule", `${busy.url}#/rules/orders?range=5m`, "#limits tbody"],
  ["shadow-rule", `${busy.url}#/rules/robots?range=5m`, ".flow .chart canvas"],
  ["key", `${busy.url}#/keys?user=alice&path=%2Fapi%2Forders&method=POST&plan=free&tenant=globex&priority=normal`, "#says tbody tr"],
  ["policy-file", `${busy.url}#/policy`, "#versions tbody tr"],
  [
    "policy",
    `${editable.url}#/policy`,
    "#versions tbody tr",
    async (page) => {
      await edit(page);
      await page.getByRole("button", { name: "What would this refuse?" }).click();
      await page.locator("#trial:visible").waitFor();
    },
  ],
  [
    "completion",
    `${editable.url}#/policy`,
    "#versions tbody tr",
    async (page) => {
      const field = page.locator("#policy-text");
      await page.waitForFunction(() => document.querySelector("#policy-text").value.includes("[rules.orders]"));
      await field.fill('[rules.orders]\nlimit = "100/min"\n');
      await field.press("Control+End");
      await field.press("Control+Space");
      await page.getByRole("listbox").waitFor();
    },
  ],
  ["audit", `${busy.url}#/audit`, "#audit tbody tr"],
  [
    "instances",
    `${busy.url}#/instances`,
    '#instances [data-kind="bad"]',
    // Each has been read a few times, so there are rates.
    (page) => page.waitForTimeout(5_000),
  ],
  ["playground", `${busy.url}#/playground`, ".strip .worst:not(:empty)"],
  ["sign-in", guarded.url, "dialog[open]"],
  ["replay", pathToFileURL(report).href, "main"],
  // By itself, a picture has no page to be taken of.
  ["simulate", "about:blank", null, (page) => page.setContent(readFileSync(picture, "utf8"))],
];

const isWanted = (variable, name) => !process.env[variable] || process.env[variable].split(",").includes(String(name));
for (const colorScheme of ["light", "dark"].filter((name) => isWanted("COLOURS", name))) {
  for (const [width, height] of SIZES.filter(([width]) => isWanted("WIDTHS", width))) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
    await context.addInitScript(([origin, token]) => location.origin === origin && sessionStorage.setItem("tidegate-token", token), [origins[0], TOKEN]);
    for (const [name, address, sign, act] of VIEWS.filter(([name]) => isWanted("ONLY", name))) {
      const page = await context.newPage();
      page.setDefaultTimeout(TIMEOUT);
      await page.goto(address);
      if (sign) await page.locator(sign).locator("visible=true").first().waitFor();
      await act?.(page);
      // A few pictures of the stream: the rates are there.
      await page.waitForTimeout(address.startsWith("http") ? 2_500 : 0);
      await page.evaluate(() => scrollTo(0, 0));
      const [wide, long] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
      const file = `${name}-${width}-${colorScheme}.png`;
      await page.screenshot({ path: join(folder, file), fullPage: true, timeout: SHOT_TIMEOUT });
      console.log(`${file}: ${wide} x ${long}, ${(long / height).toFixed(1)} screens${wide > width ? ", wider than the screen" : ""}`);
      await page.close();
    }
    await context.close();
  }
}

const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
await page.addInitScript((token) => sessionStorage.setItem("tidegate-token", token), TOKEN);
const session = await page.context().newCDPSession(page);
await session.send("Emulation.setCPUThrottlingRate", { rate: THROTTLE });
await page.goto(busy.url);
await page.locator("#recent-refusals tbody").first().waitFor();
const paints = await page.evaluate(() => performance.getEntriesByType("paint").map(({ name, startTime }) => `${name} ${Math.round(startTime)} ms`));
console.log(`with the processor ${THROTTLE} times slower: ${paints.join(", ")}`);
ending.abort();
await browser.close();
process.exit(0);
