// From a refusal to its cause, and to what can be done about it; the audit log keeps it.

import assert from "node:assert/strict";
import { check, shown, visit } from "./browser.mjs";
import { busyServer } from "./figures.mjs";

const alice = { attributes: { user: "alice" } };

/** The latency that the arrow keys tell, from the latest second back to one with requests. */
async function latencyTold(page) {
  const chart = page.locator(".latency .chart:visible");
  await chart.focus();
  for (let step = 0; step < 900; step += 1) {
    await page.keyboard.press(step === 0 ? "ArrowRight" : "ArrowLeft");
    const text = await chart.locator(".readout").innerText();
    if (text.includes("p99")) return text;
  }
  return "none";
}

/** The page of a rule: its limits, its candidate, its latency and its refused keys, also after the page was loaded anew. */
export async function tellsAllOfARule() {
  const server = await busyServer("rule.toml");
  const { page, complaints } = await visit(server.url);
  const took = /p50 [\d.,]+ (µs|ms|s)\s+·\s+p99 [\d.,]+ (µs|ms|s)$/;
  assert.match(await latencyTold(page), took);
  await page.locator("#rules").getByRole("link", { name: "orders", exact: true }).click();
  const limits = page.locator("#limits tbody tr");
  await limits.first().waitFor();
  assert.deepEqual((await limits.allInnerTexts()).map((row) => row.replace(/\s+/g, " ")), ["plan = pro 5/day", "all others 2/day"]);
  await page.locator(".candidate").getByText("9/day").waitFor();
  await page.locator("#rule-top").getByText("alice").waitFor();
  assert.match(await latencyTold(page), took);
  await page.reload();
  assert.match(await latencyTold(page), took);
  // A shadow rule decides nothing, so nothing took its time.
  await page.goto(`${server.url}#/rules/trial`);
  await page.getByRole("heading", { name: "Rule trial" }).waitFor();
  await page.locator(".latency:visible").waitFor({ state: "detached" });
  assert.deepEqual(complaints, [], "the console is silent");
  server.child.kill("SIGKILL");
}

/** An operator is told that alice is refused: finds out why, resets, refunds, and shares the page. */
export async function drillsDown() {
  const server = await busyServer("drill.toml");
  const { page, complaints } = await visit(server.url);
  await page.locator("#recent-refusals").getByRole("link", { name: "alice" }).click();
  await page.getByText(/^Refused now by orders, retry after/).waitFor();
  assert.ok(page.url().endsWith("#/keys?user=alice"), page.url());
  const row = (rule) => page.locator("#says tbody tr", { has: page.getByRole("link", { name: rule, exact: true }) });
  await row("orders").getByText("0 of 2").waitFor();
  await row("trial").getByText("would refuse").waitFor();
  await page.locator("#key-refusals", { hasText: "orders" }).waitFor();
  const command = `curl --json '{"attributes":{"user":"alice"}}' ${server.url}admin/v1/keys/inspect`;
  assert.equal(await page.locator(".command code:visible").innerText(), command);
  await page.getByRole("button", { name: "Copy as curl" }).click();
  await page.waitForFunction(() => window.toasts.some((toast) => /^(Copied|Selected)/.test(toast)));

  // A reset without a reason is not made, and can be called off.
  const dialog = page.getByRole("dialog");
  await row("orders").getByRole("button", { name: "Reset" }).click();
  await dialog.getByRole("button", { name: "Reset" }).click();
  assert.ok(await dialog.isVisible(), "it asks for a reason");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await row("orders").getByText("0 of 2").waitFor();
  await row("orders").getByRole("button", { name: "Reset" }).click();
  await dialog.getByLabel("Reason").fill("alice called");
  await dialog.getByRole("button", { name: "Reset" }).click();
  await shown(page, "Reset orders, 2 remaining");
  await row("orders").getByText("2 of 2").waitFor();
  assert.deepEqual([await check(server.url, alice), await check(server.url, alice)], [200, 200]);
  await row("orders").getByText("0 of 2").waitFor();
  await row("orders").getByRole("button", { name: "Refund" }).click();
  await dialog.getByLabel("Units").fill("1");
  await dialog.getByLabel("Reason").fill("a failed order");
  await page.keyboard.press("Enter");
  await shown(page, "Refunded orders");
  await row("orders").getByText("1 of 2").waitFor();

  // The address alone leads here.
  const other = await visit(page.url());
  await other.page.getByRole("heading", { name: "user=alice" }).waitFor();
  await other.page.getByText("Would be admitted now").waitFor();
  await other.page.close();

  // A bare key leads to the attribute that the rules go by.
  await page.getByRole("searchbox").fill("bob");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "bob", exact: true }).waitFor();
  await page.getByRole("link", { name: "user=bob" }).click();
  await row("orders").getByText("2 of 2").waitFor();

  await row("orders").getByRole("link").click();
  await page.getByRole("heading", { name: "Rule orders" }).waitFor();
  assert.ok(page.url().endsWith("#/rules/orders"), page.url());
  await page.locator(".hint:visible").getByText("2/day by user").waitFor();
  await page.locator(".candidate", { hasText: "9/day" }).waitFor();
  await page.locator(".flow .total:visible").getByText("4 admitted, 3 refused").waitFor();
  await page.locator("#rule-top").getByRole("link", { name: "alice" }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "user=bob" }).waitFor();

  await page.getByRole("link", { name: "Audit" }).click();
  const entry = (action) => page.locator("#audit tbody tr", { hasText: action });
  await entry("admin-refund").waitFor();
  const cells = await entry("admin-refund").locator("td").allInnerTexts();
  assert.deepEqual([cells[1], cells[2], cells[4]], ["done", "anonymous", "a failed order"], cells.join());
  assert.match(cells[3], /^127\.0\.0\.1/);
  await entry("admin-reset").getByText("alice called").waitFor();
  assert.deepEqual(complaints, [], "the console is silent");
  server.child.kill("SIGKILL");
}
