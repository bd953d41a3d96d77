// Several servers on one page.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, folder, freePort, makeToken, serve, visit } from "./browser.mjs";

/** Each instance has a row, and one that is away stops no other. */
export async function showsAllInstances() {
  const policy = join(folder, "instances.toml");
  const tokens = join(folder, "instances-tokens.toml");
  writeFileSync(policy, '[rules.orders]\nlimit = "5/d"\nkey = ["user"]\n');
  const ops = makeToken("ops", "admin");
  writeFileSync(tokens, ops.lines);
  const origins = [];
  for (let number = 0; number < 3; number += 1) origins.push(`http://127.0.0.1:${await freePort()}`);
  const listed = origins.flatMap((origin) => ["--dashboard-instance", origin]);
  const start = (origin) => serve(new URL(origin).host, policy, "--tokens", tokens, "--anonymous", "check", ...listed);
  const [one, two] = [await start(origins[0]), await start(origins[1])];
  const { page, strangers, addresses } = await visit(one.url, {}, origins);
  await page.locator("#token").fill(ops.token);
  await page.click("#give-token");
  await page.getByRole("link", { name: "Instances" }).click();
  assert.ok(page.url().endsWith("#/instances"), page.url());
  const row = (name) => page.locator("#instances tbody", { hasText: name });
  await row(origins[0]).getByText("Admitting · this server").waitFor();
  await row(origins[1]).getByText("Admitting").waitFor();
  await row(origins[2]).getByText("No answer").waitFor();
  await page.getByText("2 of 3 answer.").waitFor();

  // The keys of both, in each row and in the sum.
  await check(one.url, { attributes: { user: "alice" } });
  for (const user of ["bob", "carol"]) await check(two.url, { attributes: { user } });
  const keys = (name) => row(name).locator('[data-label="keys"]');
  await keys(origins[0]).getByText("1", { exact: true }).waitFor();
  await keys(origins[1]).getByText("2", { exact: true }).waitFor();
  await keys("All instances").getByText("3", { exact: true }).waitFor();
  await row("All instances").getByText("without 1 that did not answer").waitFor();
  // A rate of the other server, from one reading of it to the next.
  const rate = row(origins[1]).locator('[data-label="admitted / s"]');
  for (let tries = 0; !/^[0-9.]*[1-9]/.test(await rate.innerText()); tries += 1) {
    assert.ok(tries < 3_000, "its requests are counted");
    await check(two.url, { attributes: { user: `user-${tries}` } });
    await page.waitForTimeout(50);
  }

  // One that goes says so; one that comes is there again.
  two.child.kill("SIGKILL");
  await row(origins[1]).getByText("No answer").waitFor();
  const three = await start(origins[2]);
  await row(origins[2]).getByText("Admitting").waitFor();
  assert.deepEqual(strangers, [], "only the listed servers are asked");
  assert.ok(!addresses.some((address) => address.includes(ops.token)), "the token is in no address");
  for (const { child } of [one, three]) child.kill("SIGKILL");

  // Where no other instance is listed, there is no such view to go to.
  const alone = await serve("127.0.0.1:0", policy);
  const other = await visit(alone.url);
  await other.page.getByText("Admitting").first().waitFor();
  assert.ok(!(await other.page.getByRole("link", { name: "Instances" }).isVisible()));
  await other.page.goto(`${alone.url}#/instances`);
  await other.page.getByText("No other instance is configured").waitFor();
  alone.child.kill("SIGKILL");
}
