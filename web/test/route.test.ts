import assert from "node:assert/strict";
import { test } from "node:test";
import { curl, isSame, parseSearch, words } from "../src/request.ts";
import { address, parse, type Route } from "../src/route.ts";

test("every view has an address that leads to it again", () => {
  const routes: Route[] = [
    { view: "overview", range: "15m" },
    { view: "overview", range: "24h" },
    { view: "rule", rule: "orders (candidate)", range: "1h" },
    { view: "rule", rule: "a/b?c=d#e%", range: "15m" },
    { view: "request", request: { key: "a/b ☃" } },
    { view: "request", request: { attributes: { user: "alice & bob", path: "/orders?x=1" }, cost: 4, amounts: { tokens: 9 } } },
    { view: "request", request: { key: "alice", limit: "leaky 1/h" } },
    { view: "policy", version: null },
    { view: "policy", version: 3 },
    { view: "audit" },
    { view: "playground" },
  ];
  for (const route of routes) assert.deepEqual(parse(address(route)), route, address(route));
  assert.equal(address({ view: "request", request: { attributes: { user: "alice" } } }), "#/keys?user=alice");
});

test("an address that leads nowhere is the overview", () => {
  for (const hash of ["", "#", "#overview", "#/none", "#/keys", "#/rules/", "#/?range=2m", "#/keys?.cost=1"]) {
    assert.deepEqual(parse(hash), { view: "overview", range: "15m" }, hash);
  }
  assert.deepEqual(parse("#policy"), { view: "policy", version: null });
  assert.deepEqual(parse("#/rules/%E0%A4%A"), { view: "rule", rule: "%E0%A4%A", range: "15m" });
});

test("a search is attributes or a bare key", () => {
  assert.deepEqual(parseSearch(" user=alice  path=/orders "), { attributes: { user: "alice", path: "/orders" } });
  assert.deepEqual(parseSearch('user="a b" plan='), { attributes: { user: "a b", plan: "" } });
  assert.deepEqual(parseSearch("alice"), { key: "alice" });
  assert.deepEqual(parseSearch("alice user=bob"), { key: "alice user=bob" });
  assert.equal(parseSearch("  "), null);
  const request = { attributes: { user: "a b", path: "/orders" } };
  assert.deepEqual(parseSearch(words(request)), request);
});

test("requests about the same key are the same, whatever their cost and rule", () => {
  const one = { attributes: { user: "alice", n: 1 }, cost: 2, rule: "orders" };
  assert.ok(isSame(one, { attributes: { n: "1", user: "alice" } }));
  assert.ok(!isSame(one, { attributes: { user: "alice" } }));
  assert.ok(!isSame({ key: "alice" }, { key: "alice", limit: "1/s" }));
});

test("a command is one word of the shell, and holds no token", () => {
  assert.equal(curl({ key: "it's" }, "http://h/v1/check", false), String.raw`curl --json '{"key":"it'\''s"}' http://h/v1/check`);
  assert.match(curl({ key: "a" }, "http://h/", true), /^curl -H 'authorization: Bearer TOKEN' --json /);
});
