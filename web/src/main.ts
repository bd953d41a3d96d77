/** The page: one view for each address, fed by one stream. */

import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./style/panels.css";
import "./style/tables.css";
import "./style/policy.css";
import "./style/playground.css";
import "./style/small.css";

import { readSession } from "./api.ts";
import { byId } from "./dom.ts";
import { Feed, type Link } from "./feed.ts";
import { Instances } from "./instances.ts";
import { Live } from "./live.ts";
import { announce } from "./parts/notice.ts";
import { parseSearch, words } from "./request.ts";
import { NO_RIGHTS, may, restriction, setRights } from "./rights.ts";
import { address, parse, type Route } from "./route.ts";
import type { Picture } from "./types.ts";
import { Access } from "./views/access.ts";
import { AuditView } from "./views/audit.ts";
import { InstancesView } from "./views/instances.ts";
import { Overview } from "./views/overview.ts";
import { Playground } from "./views/playground.ts";
import { PolicyView } from "./views/policy.ts";
import { RequestView } from "./views/request.ts";
import { RuleView } from "./views/rule.ts";
import { Status } from "./views/status.ts";
import { themeButton } from "./views/theme.ts";
import type { View } from "./views/view.ts";

const status = new Status();
const live = new Live(() => view.show?.());
const instances = new Instances();
const access = new Access(() => {
  isOpen = false;
  begin();
});
const unauthorized = () => access.ask("The server does not know this token.");
const views: Record<Route["view"], View> = {
  overview: new Overview(live),
  rule: new RuleView(live),
  request: new RequestView(live, unauthorized),
  policy: new PolicyView(live, unauthorized),
  instances: new InstancesView(live, instances),
  audit: new AuditView(unauthorized),
  playground: new Playground(unauthorized),
};
const feed = new Feed(onPicture, onLink);
const search = byId("search") as HTMLInputElement;

let route = parse(location.hash);
let view = views[route.view];
/** Whether the view has been told its address: that waits until the server answers. */
let isOpen = false;

byId("status").append(status.element);
for (const { element } of Object.values(views)) byId("view").append(element);
themeButton();
navigate();
addEventListener("hashchange", () => {
  navigate();
  scrollTo(0, 0);
  byId("main").focus({ preventScroll: true });
});
// An address of its own would leave the view.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
byId("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const request = parseSearch(search.value);
  if (request) location.hash = address({ view: "request", request });
});
begin();

/** Asks what the token may do, then follows the server. */
function begin(): void {
  setRights(NO_RIGHTS);
  status.restrict("");
  void identify().finally(() => feed.start());
}

async function identify(): Promise<void> {
  try {
    const session = await readSession();
    setRights(session);
    status.restrict(restriction());
    access.name(session.identity);
    await instances.load();
    byId("instances-link").hidden = instances.others.length === 0;
  } catch {
    // The stream says what is wrong.
  }
}

function navigate(): void {
  view.close?.();
  route = parse(location.hash);
  view = views[route.view];
  if ("range" in route) live.range = route.range;
  for (const { element } of Object.values(views)) element.hidden = element !== view.element;
  const section = route.view === "rule" || route.view === "request" ? "" : route.view === "overview" ? "#/" : `#/${route.view}`;
  for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
    if (link.hash === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (route.view === "request") search.value = words(route.request);
  isOpen = false;
  if (document.body.dataset["link"] === "live") void open();
}

async function open(): Promise<void> {
  if (isOpen) return;
  isOpen = true;
  const opened = route;
  // The server was away when it was asked first.
  if (!may("view")) await identify();
  if (opened !== route) return;
  view.open?.(route);
  view.show?.();
  document.title = view.title ? `${view.title} – tidegate` : "tidegate";
}

function onPicture(picture: Picture): void {
  const before = status.words;
  status.show(picture);
  if (status.words !== before) announce(status.words);
  byId("version").textContent = picture.version;
  live.take(picture);
}

function onLink(link: Link): void {
  const before = status.words;
  status.showLink(link);
  if (status.words !== before) announce(status.words);
  document.body.dataset["link"] = link.state;
  if (link.state === "live") void open();
  const notice = byId("link-notice");
  notice.hidden = link.state === "live" || link.state === "connecting";
  if (link.state === "lost") notice.textContent = `${link.why} Trying again…`;
  if (link.state === "refused") {
    notice.textContent = link.failure.message;
    if (link.failure.isUnauthorized) access.ask(link.failure.message);
  }
}
