// Every view, light and dark: nothing that keeps a person out, nothing wider than the screen, and a small page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { TIMEOUT, browser } from "./browser.mjs";
import { busyServer } from "./figures.mjs";

/** Bytes that the page may have, compressed. */
const MAX_PAGE = 150 * 1_024;

/** Addresses, and what is there once they have loaded. */
const VIEWS = [
  ["#/", "#recent-refusals tbody"],
  ["#/?range=24h", "#recent-refusals tbody"],
  ["#/rules/orders", "#limits tbody"],
  ["#/rules/trial", ".flow .chart canvas"],
  ["#/keys?user=alice", "#says tbody tr"],
  ["#/keys/alice", "#says tbody tr"],
  ["#/policy", "#versions tbody tr"],
  ["#/audit", "#audit tbody tr"],
  ["#/instances", "#instances tbody tr"],
  ["#/playground", ".strip .worst:not(:empty)"],
];

export async function keepsNoPersonOut() {
  const server = await busyServer("access.toml");
  // The audit log has an entry.
  const headers = { "content-type": "application/json" };
  const reset = { method: "POST", headers, body: JSON.stringify({ rule: "orders", attributes: { user: "bob" } }) };
  assert.equal((await fetch(new URL("/admin/v1/keys/reset?reason=a+test", server.url), reset)).status, 200);
  const axe = readFileSync(process.env.AXE, "utf8");
  for (const [colorScheme, width] of [["light", 1280], ["dark", 390]]) {
    // Only so can the page hold what examines it.
    const context = await browser.newContext({ bypassCSP: true, colorScheme, viewport: { width, height: 844 }, reducedMotion: "reduce" });
    for (const [address, sign] of VIEWS) {
      const page = await context.newPage();
      page.setDefaultTimeout(TIMEOUT);
      await page.goto(server.url + address);
      await page.locator(sign).locator("visible=true").first().waitFor();
      await page.evaluate(axe);
      const findings = await page.evaluate(async () => {
        const { violations } = await window.axe.run();
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("\n")}`);
      });
      assert.deepEqual(findings, [], `${address}, ${colorScheme}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${address} is ${wide} wide`);
      // Commands and texts of policies may scroll sideways, tables do not.
      const tables = await page.evaluate(() => [...document.querySelectorAll("table")].filter((table) => table.getBoundingClientRect().right > innerWidth).map(({ id }) => id));
      assert.deepEqual(tables, [], `${address} has tables that are cut off`);
      assert.equal(await page.evaluate(() => scrollY), 0, `${address} begins at the top`);
      await page.close();
    }
    await context.close();
  }
  server.child.kill("SIGKILL");
}

export async function isSmall() {
  const server = await busyServer("small.toml");
  const page = await browser.newPage();
  await page.goto(server.url);
  const bytes = await page.evaluate(() => {
    const files = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
    return files.filter(({ name }) => !name.includes("/admin/")).reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
  });
  assert.ok(bytes > 10_000 && bytes < MAX_PAGE, `${bytes} bytes`);
  await page.close();
  server.child.kill("SIGKILL");
}
