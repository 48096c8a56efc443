// The subscriptions, with the lag of each.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { count, oldest, unknown, visible } from "../format.js";
import { empty, loading, mark, unread } from "../parts.js";
import { href } from "../router.js";
import { sorter } from "../sort.js";
import { subscriptionStates } from "../words.js";

// stateOf is the state of a subscription in a status: nobody knows it before the first one, and while it
// cannot be read.
export const stateOf = (s) => (!s || s.error ? "unknown" : s.paused ? "paused" : !s.instances ? "no_process" : s.suspended ? "suspended" : "active");

export function subscriptions(ctx) {
  ctx.title("Subscriptions");
  const body = h("div", null, loading("the subscriptions"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Subscriptions"), h("p", { class: "muted" }, "Queues over topics, which programs consume by HTTP. outbox subscriptions apply creates and changes them.")), body));
  let all = null, states = new Map();

  const read = ctx.reader(async () => {
    all = (await api.subscriptions(ctx.signal)).subscriptions;
    draw();
  }, body);
  const readStates = ctx.reader(async () => take(await api.status(ctx.signal)), () => { /* they are unknown */ });
  // take keeps the states in a status, unless they are old.
  function take(status) {
    states = new Map(unread(status, "subscriptions") ? [] : status.subscriptions.map((s) => [s.name, s]));
    if (all) draw();
  }

  let drawn = "";
  const order = sorter(() => { drawn = ""; draw(); });
  function draw() {
    const now = JSON.stringify([all, ...states]);
    if (now === drawn) return;
    drawn = now;
    fill(body, all.length ? table(all, states, order) : empty("There are no subscriptions.", "outbox subscriptions apply -f FILE creates one; outbox subscriptions runs it."));
  }

  ctx.on(["status"], take);
  ctx.every(10_000, read);
  read();
  readStates();
}

const columns = (states) => [["Subscription", (s) => s.name], ["State", (s) => stateOf(states.get(s.name))], ["Topics", (s) => s.topics.join(", ")], ["Lag", (s) => states.get(s.name)?.lag, true], ["In flight", (s) => states.get(s.name)?.leased, true],
  ["Oldest", (s) => states.get(s.name)?.oldest], ["Dead letters", (s) => states.get(s.name)?.dead_letters, true]];

const table = (all, states, order) => h("div", { class: "scroll", role: "region", "aria-label": "Subscriptions", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Subscriptions, by name"),
  h("thead", null, h("tr", null, order.head(columns(states)))),
  h("tbody", null, order.rows(all, columns(states)).map((s) => {
    const now = states.get(s.name), state = stateOf(now), number = (n) => (state === "unknown" ? unknown() : count(n));
    return h("tr", { "data-id": s.name },
      h("td", { "data-label": "Subscription" }, h("a", { href: href(`/subscriptions/${s.name}`), "data-key": `row-${s.name}` }, visible(s.name))),
      h("td", { "data-label": "State" }, mark(subscriptionStates, state), now?.error && h("span", { class: "danger-text break" }, ` ${visible(now.error)}`)),
      h("td", { "data-label": "Topics" }, h("span", { class: "clip wide", title: visible(s.topics.join(", ")) }, visible(s.topics.join(", ")))),
      h("td", { "data-label": "Lag", class: "num" }, number(now?.lag)),
      h("td", { "data-label": "In flight", class: "num" }, number(now?.leased)),
      h("td", { "data-label": "Oldest", class: "nowrap" }, state === "unknown" ? unknown() : oldest(now.oldest)),
      h("td", { "data-label": "Dead letters", class: "num" }, now?.dead_letters && state !== "unknown" ? h("a", { class: "danger-text", href: href("/dead-letters", { table: `subscription.${s.name}` }), "data-key": `dead-${s.name}` }, count(now.dead_letters)) : number(0)));
  }))));
