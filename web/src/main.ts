/** The page: views by the address's fragment, fed by one stream. */

import "uplot/dist/uPlot.min.css";
import "./style.css";

import { byId, h } from "./dom.ts";
import { Feed, type Link } from "./feed.ts";
import { History } from "./history.ts";
import { announce } from "./parts/notice.ts";
import type { Picture } from "./types.ts";
import { Access } from "./views/access.ts";
import { Flow } from "./views/flow.ts";
import { Latency } from "./views/latency.ts";
import { Playground } from "./views/playground.ts";
import { PolicyView } from "./views/policy.ts";
import { Refusals } from "./views/refusals.ts";
import { Crossings } from "./views/crossings.ts";
import { Reservations } from "./views/reservations.ts";
import { Rules } from "./views/rules.ts";
import { Status } from "./views/status.ts";
import { Store } from "./views/store.ts";
import { themeButton } from "./views/theme.ts";
import { Top } from "./views/top.ts";

const VIEWS = ["overview", "policy", "playground"] as const;
type View = (typeof VIEWS)[number];

let view: View = "overview";
const history = new History();
const status = new Status();
const [flow, latency, store, rules, top] = [new Flow(), new Latency(), new Store(), new Rules(), new Top()];
const reservations = new Reservations();
const crossings = new Crossings();
const access = new Access(() => feed.start());
const unauthorized = () => access.ask("The server does not know this token.");
const refusals = new Refusals(unauthorized);
const policy = new PolicyView(unauthorized);
const playground = new Playground(unauthorized);
const feed = new Feed(onPicture, onLink);

byId("status").append(status.element);
byId("overview").append(
  h(
    "div",
    { class: "board" },
    h("div", { class: "column" }, flow.element, rules.element, refusals.element),
    h("div", { class: "column" }, latency.element, store.element, top.element, reservations.element, crossings.element),
  ),
);
byId("policy").append(policy.element);
byId("playground").append(playground.element);
themeButton();
showView();
addEventListener("hashchange", () => {
  showView();
  byId("main").focus();
});
feed.start();

function showView(): void {
  const wanted = location.hash.slice(1);
  view = VIEWS.find((name) => name === wanted) ?? view;
  for (const name of VIEWS) byId(name).hidden = name !== view;
  for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "playground") playground.visit();
  document.title = view === "overview" ? "tidegate" : `${view} – tidegate`;
}

function onPicture(picture: Picture): void {
  history.add(picture);
  const before = status.words;
  status.show(picture);
  if (status.words !== before) announce(status.words);
  flow.show(history);
  latency.show(history);
  store.show(picture);
  rules.show(picture, history);
  top.show(picture);
  reservations.show(picture);
  crossings.show(picture);
  refusals.show(picture);
  policy.show(picture);
  byId("version").textContent = picture.version;
}

function onLink(link: Link): void {
  const before = status.words;
  status.showLink(link);
  if (status.words !== before) announce(status.words);
  if (link.state === "live" && document.body.dataset["link"] !== "live" && view === "playground") playground.visit();
  document.body.dataset["link"] = link.state;
  const notice = byId("link-notice");
  notice.hidden = link.state === "live" || link.state === "connecting";
  if (link.state === "lost") notice.textContent = `${link.why} Trying again…`;
  if (link.state === "refused") {
    notice.textContent = link.failure.message;
    if (link.failure.isUnauthorized) access.ask(link.failure.message);
  }
}
