// The subscriptions, with the lag of each.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, visible } from "../format.js";
import { empty, failed, loading, mark } from "../parts.js";
import { href } from "../router.js";
import { sorter } from "../sort.js";
import { subscriptionStates } from "../words.js";

// most bounds the subscriptions whose status is read: each needs the database, the broker
// and all processes.
const most = 50;

// suspended reports that no process calls the destination of push delivery.
const suspended = (processes) => processes.some((i) => i.partitions > 0) && processes.every((i) => !i.partitions || (i.breaker && i.breaker.state !== "closed"));

export const stateOf = (s, processes = []) => (s.paused ? "paused" : suspended(processes) ? "suspended" : "active");

export function subscriptions(ctx) {
  ctx.title("Subscriptions");
  const body = h("div", null, loading("the subscriptions"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Subscriptions"), h("p", { class: "muted" }, "Queues over topics, which programs consume by HTTP. outbox subscriptions apply creates and changes them.")), body));
  let all = null;
  const known = new Map();

  async function read() {
    try {
      all = (await api.subscriptions(ctx.signal)).subscriptions;
      draw();
      for (const s of all.slice(0, most)) { // one after the other
        known.set(s.name, await api.subscriptionStatus(s.name, ctx.signal).catch((err) => ({ error: err.message, instances: [] })));
        if (ctx.signal.aborted) return;
        draw();
      }
    } catch (err) {
      if (!ctx.signal.aborted && !all) fill(body, failed(err, read));
    }
  }

  let drawn = "";
  const order = sorter(() => { drawn = ""; draw(); });
  function draw() {
    const now = JSON.stringify([all, ...known]);
    if (now === drawn) return;
    drawn = now;
    fill(body, all.length ? table(all, known, order) : empty("There are no subscriptions.", "outbox subscriptions apply -f FILE creates one; outbox subscriptions runs it."));
  }

  ctx.every(10_000, read);
  read();
}

const columns = (known) => [["Subscription", (s) => s.name], ["State", (s) => stateOf(s, known.get(s.name)?.instances)], ["Topics", (s) => s.topics.join(", ")], ["Lag", (s) => known.get(s.name)?.lag, true], ["In flight", (s) => known.get(s.name)?.leased, true],
  ["Oldest", (s) => known.get(s.name)?.oldest], ["Dead letters", (s) => known.get(s.name)?.dead_letters, true]];

const table = (all, known, order) => h("div", { class: "scroll", role: "region", "aria-label": "Subscriptions", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Subscriptions, by name"),
  h("thead", null, h("tr", null, order.head(columns(known)))),
  h("tbody", null, order.rows(all, columns(known)).map((s) => {
    const now = known.get(s.name), number = (n) => (now && !now.error ? count(n) : "–");
    return h("tr", { "data-id": s.name },
      h("td", { "data-label": "Subscription" }, h("a", { href: href(`/subscriptions/${s.name}`), "data-key": `row-${s.name}` }, visible(s.name))),
      h("td", { "data-label": "State" }, mark(subscriptionStates, stateOf(s, now?.instances)), now && !now.instances.length && h("span", { class: "danger-text" }, now.error ? ` ${visible(now.error)}` : " no process runs it")),
      h("td", { "data-label": "Topics" }, h("span", { class: "clip wide", title: visible(s.topics.join(", ")) }, visible(s.topics.join(", ")))),
      h("td", { "data-label": "Lag", class: "num" }, number(now?.lag)),
      h("td", { "data-label": "In flight", class: "num" }, number(now?.leased)),
      h("td", { "data-label": "Oldest", class: "nowrap" }, now?.oldest ? ago(now.oldest) : "–"),
      h("td", { "data-label": "Dead letters", class: "num" }, now?.dead_letters ? h("a", { class: "danger-text", href: href("/dead-letters", { table: `subscription.${s.name}` }), "data-key": `dead-${s.name}` }, count(now.dead_letters)) : number(0)));
  }))));
