// One order: its content, its possible changes, and its events.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, stamp, visible } from "../format.js";
import { copyButton, facts, loading, mark, panel } from "../parts.js";
import { href } from "../router.js";
import { may } from "../session.js";
import { serverTime } from "../time.js";
import { orderChanges, orderStates } from "../words.js";
import { biography } from "./event.js";

const published = (life) => life?.steps?.some((s) => s.kind === "published");

export function order(ctx) {
  const id = ctx.params.id;
  ctx.title(`Order ${short(id)}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Order"), loading("the order"));
  let o = null, events = { events: [] }, life = null, tries = 0;

  const read = ctx.reader(async () => {
    const now = await api.order(id, ctx.signal);
    if (now.version !== o?.version) {
      events = await api.orderEvents(id, null, ctx.signal);
      o = now; life = null; tries = 0;
      draw();
    }
    await follow();
  }, (why) => fill(ctx.el, h("h1", { tabindex: "-1" }, "Order"), why), (err) => err.status === 404 && fill(ctx.el, h("h1", { tabindex: "-1" }, "No such order"), h("div", { class: "empty" }, h("p", { class: "empty-title" }, "There is no order with this id."), h("p", { class: "muted" }, "Check that the id is complete."), h("div", { class: "row" }, h("a", { class: "button", href: href("/orders") }, "To the orders")))));

  // follow searches the topic for the last event until it is there. A search costs
  // a reading of the topic, so it is not done for ever.
  async function follow() {
    const last = events.events[0];
    if (!last || published(life) || tries >= (serverTime() - Date.parse(last.at) < 600_000 ? 10 : 1)) return;
    tries++;
    try {
      const now = await api.event(last.event_id, ctx.signal);
      if (events.events[0] !== last) return;
      life = now;
      draw();
    } catch { /* its own page shows the error */ }
  }

  const run = (name) => {
    const c = orderChanges[name];
    const form = Object.entries(c.fields ?? {}).map(([key, label]) => h("label", null, label, h("input", { type: "text", maxlength: key === "reason" ? 200 : 64, autocomplete: "off", "data-key": `x-${key}`, name: key })));
    let etag = null;
    ask({
      title: c.title, word: c.title, danger: c.danger, form, said: c.done, done: read,
      look: async () => {
        const p = await api.orderPreview(id, name);
        etag = p.etag;
        return { ok: p.allowed, view: p.allowed ? allowed(p, c) : h("p", { class: "callout warn" }, h("b", null, "This is not allowed. "), p.refusal) };
      },
      make: (reason) => {
        const body = Object.fromEntries(form.map((l) => l.querySelector("input")).map((i) => [i.name, i.value.trim()]).filter(([, v]) => v));
        return api.changeOrder(id, name, body, etag, reason);
      },
    });
  };

  function draw() {
    const names = Object.keys(orderChanges).filter((name) => orderChanges[name].from.includes(o.status) && may(orderChanges[name].right ?? name));
    fill(ctx.el, h("div", { class: "stack" },
      h("header", { class: "detail-head" },
        h("p", { class: "crumbs small" }, h("a", { href: href("/orders", { customer: o.customer_id }), "data-key": "crumb" }, "Orders"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "order id")),
        h("div", { class: "row between" },
          h("div", { class: "row title" }, h("h1", { tabindex: "-1" }, `Order of ${o.total} ${o.currency}`), mark(orderStates, o.status), h("span", { class: "muted" }, `version ${count(o.version)}`)),
          h("div", { class: "row actions" },
            names.map((name) => h("button", { type: "button", class: `button ${orderChanges[name].danger ? "danger" : name === names[0] ? "primary" : ""}`, "data-key": `act-${name}`, onclick: () => run(name) }, orderChanges[name].title)),
            !names.length && h("span", { class: "muted small" }, may("confirm") ? "Its state is final." : "Your role is read-only.")))),
      h("div", { class: "detail" },
        h("div", { class: "stack" }, lines(o), address(o), timeline(o, events)),
        h("div", { class: "stack" }, details(o), life && biography(life)))));
  }

  ctx.every(2500, read);
  read();
}

// allowed shows the order after a change.
const allowed = (p, c) => [
  h("p", { class: `callout ${c.danger ? "bad" : ""}` }, c.says),
  h("div", { class: "preview" },
    h("div", null, h("h3", null, "Status"), h("p", null, mark(orderStates, p.status), " → ", mark(orderStates, p.status_after))),
    h("div", null, h("h3", null, "Version"), h("p", null, `${count(p.version)} → ${count(p.version_after)}`)),
    h("div", null, h("h3", null, "Publishes"), h("p", null, `one ${p.event_type}`))),
];

const lines = (o) => panel("Lines", { aside: h("span", { class: "small muted" }, plural(o.lines.length, "line")) },
  h("div", { class: "scroll", role: "region", "aria-label": "Lines of the order", tabindex: "0" }, h("table", { class: "cards" }, h("caption", { class: "hidden-text" }, "Lines"),
    h("thead", null, h("tr", null, ["Article", "Description", "Quantity", "Unit price"].map((t, i) => h("th", { scope: "col", class: i > 1 ? "num" : null }, t)))),
    h("tbody", null, o.lines.map((l) => h("tr", null,
      h("td", { "data-label": "Article" }, h("span", { class: "mono break" }, visible(l.sku))),
      h("td", { "data-label": "Description", class: "break" }, visible(l.description ?? "–")),
      h("td", { "data-label": "Quantity", class: "num" }, count(l.quantity)),
      h("td", { "data-label": "Unit price", class: "num nowrap" }, `${l.unit_price} ${o.currency}`)))))),
  h("p", { class: "row between gap" }, h("span", { class: "muted" }, "Total, computed from the lines"), h("b", null, `${o.total} ${o.currency}`)));

const address = (o) => {
  const a = o.address;
  return panel("Shipping address", {}, a
    ? facts([...Object.entries(a).map(([k, v]) => [k[0].toUpperCase() + k.slice(1).replaceAll("_", " "), visible(v)]), ["Country", visible(o.country)]])
    : h("p", null, visible(o.country), h("span", { class: "muted" }, " · no address was given")));
};

const details = (o) => panel("Order", {}, facts([
  ["Customer", o.customer_id ? h("a", { href: href("/orders", { customer: o.customer_id }), "data-key": "customer" }, visible(o.customer_id)) : h("span", { class: "muted" }, "a guest")],
  ["Reference", o.invoice && visible(o.invoice)], ["Placed", [stamp(o.placed_at), " · ", ago(o.placed_at)]], ["Stored", stamp(o.created_at)], ["Changed", o.version > 1 ? [stamp(o.updated_at), " · ", ago(o.updated_at)] : null],
  ["Confirmed", o.confirmed_at && stamp(o.confirmed_at)], ["Shipped", o.shipped_at && stamp(o.shipped_at)], ["Carrier", o.carrier && visible(o.carrier)], ["Tracking", o.tracking && h("span", { class: "mono" }, visible(o.tracking))],
  ["Cancelled", o.cancelled_at && stamp(o.cancelled_at)], ["Credit note", o.credit_note && visible(o.credit_note)], ["Cancel reason", o.cancel_reason && visible(o.cancel_reason)],
]));

const timeline = (o, page) => panel("Events", { aside: h("span", { class: "small muted" }, "newest first") }, page.events.length
  ? h("ol", { class: "timeline events" }, page.events.map((e) => h("li", { class: `t-${orderStates[e.status]?.[0] ?? "archived"}` },
    h("p", null, h("b", null, e.type), " ", h("span", { class: "muted" }, `version ${count(e.version)}, ${e.status}`)),
    h("p", { class: "small muted" }, stamp(e.at), " · ", h("a", { href: href(`/events/${e.event_id}`), "data-key": `e-${e.event_id}` }, "history")))))
  : h("p", { class: "muted" }, "The outbox no longer has them; by default it keeps rows for a week."),
page.next && h("p", { class: "small muted" }, `Those of the versions before ${count(Number(page.next))} are not shown.`));
