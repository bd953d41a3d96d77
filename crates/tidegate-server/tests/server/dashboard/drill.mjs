// From a refusal to its cause, and to what can be done about it; the audit log keeps it.

import assert from "node:assert/strict";
import { check, shown, visit } from "./browser.mjs";
import { busyServer } from "./figures.mjs";

const alice = { attributes: { user: "alice" } };

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
