// What a token may not do is not offered.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ask, folder, makeToken, serve, visit } from "./browser.mjs";

const POLICY = '[rules.orders]\nlimit = "1/d"\nkey = ["user"]\n';

async function signIn(page, token) {
  await page.locator("#token").fill(token);
  await page.click("#give-token");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.getByText("Admitting").first().waitFor();
}

/** A token that only reads, then one that manages keys, then one that may do all. */
export async function offersWhatTheTokenMayDo() {
  const [viewer, keeper, ops] = [["viewer", "view"], ["keeper", "view,manage"], ["ops", "admin"]].map((one) => makeToken(...one));
  const [policy, tokens] = ["rights.toml", "tokens.toml"].map((name) => join(folder, name));
  writeFileSync(policy, POLICY);
  writeFileSync(tokens, viewer.lines + keeper.lines + ops.lines);
  const server = await serve("127.0.0.1:0", policy, "--tokens", tokens, "--anonymous", "check");
  for (const expected of [200, 429]) assert.equal(await ask(server.url, "check", { attributes: { user: "alice" } }), expected);
  const { page } = await visit(server.url);
  const audit = page.getByRole("link", { name: "Audit" });
  const search = page.getByRole("search");
  const reset = page.locator("#says").getByRole("button", { name: "Reset" });
  const restriction = page.locator("#restriction");

  await signIn(page, viewer.token);
  assert.equal(await restriction.innerText(), "Read only: this token has the right view.");
  assert.equal(await page.locator("#open-token").getAttribute("title"), "Signed in as viewer");
  assert.ok(!(await audit.isVisible()) && !(await search.isVisible()));
  // What is refused can be read; what the rules say now cannot.
  await page.locator("#recent-refusals").getByRole("link", { name: "alice" }).click();
  await page.getByText("What the rules say now takes the right manage. This token has the right view.").waitFor();
  await page.locator("#key-refusals").getByText("orders").waitFor();
  assert.equal(await reset.count(), 0);
  await page.goto(`${server.url}#/audit`);
  await page.getByText("The audit log takes the right admin.").waitFor();
  await page.goto(`${server.url}#/policy`);
  await page.locator("#versions tbody tr").first().waitFor();
  assert.ok(!(await page.locator("#apply").isVisible()));
  assert.ok(!(await page.getByRole("dialog").isVisible()), "it is not asked for another token");

  await page.click("#open-token");
  await signIn(page, keeper.token);
  await restriction.getByText("the rights view and manage").waitFor();
  assert.ok(!(await audit.isVisible()));
  await page.goto(`${server.url}#/keys?user=alice`);
  await reset.waitFor();

  await page.click("#open-token");
  await signIn(page, ops.token);
  await restriction.waitFor({ state: "hidden" });
  await audit.click();
  await page.locator("#audit tbody tr").first().waitFor();
  server.child.kill("SIGKILL");
}
