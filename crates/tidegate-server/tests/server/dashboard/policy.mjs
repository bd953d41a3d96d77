// The policy: a diff before it is applied, versions, and the way back.

import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, folder, getJson, open, serve, visit } from "./browser.mjs";

const LIMIT_3 = '[rules.everyone]\nlimit = "3/h"\n';

/** Changes the limit, sees what changes, applies it, and goes back. */
export async function appliesAndRollsBack() {
  const { page, complaints } = await visit(`${open}#/policy`);
  const active = async () => (await getJson(open, "/admin/v1/policy")).text;
  const first = await active();
  await page.waitForFunction(() => document.querySelector("#policy-text").value.includes("[rules.everyone]"));
  await page.fill("#policy-text", '[rules.everyone]\nlimit = "1/fortnight"\n');
  await page.click("#validate");
  await page.getByRole("button", { name: "Line 2, column 9" }).click();
  const cursor = await page.evaluate(() => document.activeElement.selectionStart);
  assert.equal(cursor, "[rules.everyone]\nlimit = ".length, "the cursor is where the error is");
  const apply = page.getByRole("button", { name: "Apply until restart" });
  await apply.click();
  await page.getByText("1 error:").waitFor();
  assert.equal(await active(), first);

  const another = first.replace("100/min burst 20", "3/h");
  await page.fill("#policy-text", another);
  const changed = page.locator("#policy-diff");
  const lines = (await changed.locator(".removed, .added").allInnerTexts()).map((line) => line.replace(/\s+/g, " "));
  assert.deepEqual(lines, ['removed - limit = "100/min burst 20"', 'added + limit = "3/h"']);
  await apply.click();
  await page.getByText("Active now. Changed:").waitFor();
  assert.match(await page.locator("#policy-verdict li").innerText(), /everyone/);
  await page.locator("#policy-state", { hasText: "Version 2 applied by API, until restart, active for" }).waitFor();
  assert.equal(await active(), another);
  assert.equal(await changed.innerText(), "", "nothing is left to change");

  const version = page.locator("#versions tbody tr").first();
  await version.getByText("anonymous").waitFor();
  assert.match(await version.innerText(), /everyone[^]*active/);
  await page.getByRole("link", { name: "Compare version 1" }).click();
  await changed.getByText('limit = "100/min burst 20"').waitFor();
  assert.ok(page.url().endsWith("#/policy/1"), page.url());
  await apply.click();
  await page.locator("#policy-state", { hasText: "Version 3" }).waitFor();
  assert.equal(await active(), first);

  // What was typed stays, and one is told.
  await page.fill("#policy-text", "mine");
  const headers = { "content-type": "application/toml" };
  await fetch(new URL("/admin/v1/policy", open), { method: "PUT", headers, body: LIMIT_3 });
  await page.getByText("Another policy is active now").waitFor();
  assert.equal(await page.inputValue("#policy-text"), "mine");
  await page.click("#reload-policy");
  await page.waitForFunction((text) => document.querySelector("#policy-text").value === text, LIMIT_3);
  assert.deepEqual(complaints, [], "the console is silent");
}

/** A policy of a file is shown as it is now, also after the server was away; it is changed in the file. */
export async function followsItsFile() {
  const file = join(folder, "policy.toml");
  // As some editors end their lines.
  const write = (limit) => writeFileSync(file, `[rules.everyone]\r\nlimit = "${limit}"\r\n`);
  write("1/h");
  let server = await serve("127.0.0.1:0", file);
  const { page } = await visit(`${server.url}#/policy`);
  const shows = (limit) => page.waitForFunction((text) => document.querySelector("#policy-text").value.includes(text), limit);
  await shows("1/h");
  assert.ok(await page.locator("#reload-policy").isDisabled(), "nothing has been typed");
  await page.getByText("Read-only: the file decides.").waitFor();
  assert.ok(!(await page.locator("#policy-text").isEditable()));
  assert.ok(!(await page.locator("#apply").isVisible()));
  server.child.kill("SIGKILL");
  await once(server.child, "exit");
  write("2/h");
  server = await serve(server.address, file);
  await shows("2/h");
  write("3/h");
  await shows("3/h");
  server.child.kill("SIGKILL");
}

/** Writes a rule by the keyboard alone: what can stand there is offered, and what was typed has colours. */
export async function completesWhatIsTyped() {
  const { page, complaints } = await visit(`${open}#/policy`);
  await page.waitForFunction(() => document.querySelector("#policy-text").value.includes("[rules."));
  await page.waitForFunction(() => performance.getEntriesByType("resource").some(({ name, responseEnd }) => name.endsWith("/policy/schema") && responseEnd > 0));
  const text = page.getByRole("textbox", { name: "The policy's text" });
  const list = page.getByRole("listbox", { name: "Completions" });
  const chosen = () => page.evaluate(() => document.getElementById(document.activeElement.getAttribute("aria-activedescendant"))?.querySelector("code").textContent);
  await text.fill("");
  await text.pressSequentially("[ru");
  await list.getByRole("option", { name: /^rules/ }).waitFor();
  await page.keyboard.press("Tab");
  await text.pressSequentially(".orders]\nmis");
  await list.getByText("missing", { exact: true }).waitFor();
  await page.keyboard.press("Enter");
  // After a key come its values.
  await list.getByText("skip", { exact: true }).waitFor();
  while ((await chosen()) !== "skip") await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  assert.equal(await text.inputValue(), '[rules.orders]\nmissing = "skip"');
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+Space");
  assert.ok((await list.getByRole("option").count()) > 5, "all keys of a rule");
  await page.keyboard.press("Escape");
  assert.ok(!(await list.isVisible()));
  await text.pressSequentially("li");
  await list.getByText("limit", { exact: true }).click();
  await list.getByText("sliding-log 5/10s").click();
  const written = '[rules.orders]\nmissing = "skip"\nlimit = "sliding-log 5/10s"';
  assert.equal(await text.inputValue(), written);
  // The colours are of the same text, at the same place.
  const layer = page.locator(".layer");
  assert.equal((await layer.textContent()).trimEnd(), written);
  const colours = await layer.locator("span").evaluateAll((spans) => new Set(spans.map((span) => getComputedStyle(span).color)).size);
  assert.ok(colours >= 3, `${colours} colours`);
  const fonts = await page.evaluate(() => [".layer", "#policy-text"].map((name) => {
    const { font, letterSpacing, paddingLeft, paddingTop } = getComputedStyle(document.querySelector(name));
    return [font, letterSpacing, paddingLeft, paddingTop].join();
  }));
  assert.equal(fonts[0], fonts[1]);
  await page.keyboard.press("Control+Enter");
  await page.getByText("No errors.").waitFor();
  // Tab leaves the field where no list is open.
  await text.press("Tab");
  assert.ok(!(await text.evaluate((field) => field === document.activeElement)));

  await page.selectOption("#policy-format", "yaml");
  await text.fill("rules:\n  orders:\n    ");
  await text.press("End");
  await text.pressSequentially("shad");
  await list.getByText("shadow", { exact: true }).click();
  await list.getByText("true", { exact: true }).click();
  assert.equal(await text.inputValue(), "rules:\n  orders:\n    shadow: true");
  assert.deepEqual(complaints, [], "the console is silent");
}

/** Sees what a policy would refuse of the last requests, before it is applied. */
export async function saysWhatAPolicyWouldRefuse() {
  const { page, complaints } = await visit(`${open}#/policy`);
  await page.waitForFunction(() => document.querySelector("#policy-text").value.includes("[rules."));
  for (let asked = 0; asked < 5; asked += 1) await check(open, { attributes: { user: "trial-alice" } });
  await check(open, { attributes: { user: "trial-bob" } });
  const attempt = page.getByRole("button", { name: "What would this refuse?" });
  const trial = page.getByRole("region", { name: "What this policy would refuse" });
  await page.fill("#policy-text", '[rules.everyone]\nlimit = "nonsense"\n');
  await attempt.click();
  await page.getByText("1 error:").waitFor();
  await page.fill("#policy-text", '[rules.strict]\nlimit = "2/h"\nkey = ["user"]\nmissing = "skip"\n');
  await attempt.click();
  await trial.getByText(/^The last \d+ requests, of/).waitFor();
  const change = page.locator("#trial-rules tr", { hasText: "strict" }).locator('[data-label="change"]');
  assert.equal(await change.innerText(), "+3");
  const key = page.locator("#newly-refused tr", { hasText: "trial-alice" });
  assert.equal(await key.locator('[data-label="requests"]').innerText(), "3");
  assert.equal(await page.locator("#newly-refused tr", { hasText: "trial-bob" }).count(), 0);
  assert.ok(!(await getJson(open, "/admin/v1/policy")).text.includes("strict"), "nothing was applied");
  // What was said is of this text only.
  await page.locator("#policy-text").pressSequentially("#");
  await trial.waitFor({ state: "hidden" });
  assert.deepEqual(complaints, [], "the console is silent");
}
