// A customer's orders, by the time they were placed.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, visible } from "../format.js";
import * as keys from "../keys.js";
import { empty, failed, finder, loading, mark } from "../parts.js";
import { go, href, query } from "../router.js";
import { orderStates } from "../words.js";

const fields = ["customer", "from", "to"];
const days = { "1d": 1, "7d": 7, "30d": 30, "365d": 365 };

export function orders(ctx) {
  ctx.title("Orders");
  const q = query();
  const trail = (q.trail ?? "").split(" ").filter(Boolean); // cursors of the pages before
  const list = h("div");
  const change = (next) => go(href("/orders", { ...Object.fromEntries(fields.map((k) => [k, q[k]])), ...next }).slice("/console".length));
  const form = filters(q, change);
  fill(ctx.el, h("div", { class: "stack" },
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Orders"), finder("Open an order by its id", "order id", (id) => go(`/orders/${id}`))), form.el, list));
  let page = null;

  async function read() {
    if (!q.customer) return fill(list, empty("Whose orders?", "Give the customer's id. A guest's order is in no list; open it by its own id."));
    if (!page) fill(list, loading("orders"));
    try {
      const now = await api.orders({ customer_id: q.customer, from: days[q.from] ? new Date(Date.now() - days[q.from] * 86400_000).toISOString() : q.from, to: q.to, limit: 50, cursor: q.cursor }, ctx.signal);
      if (JSON.stringify(now) === JSON.stringify(page)) return undefined;
      page = now;
    } catch (err) {
      if (!ctx.signal.aborted && !page) fill(list, failed(err, read));
      return undefined;
    }
    return draw();
  }

  function draw() {
    const all = page.orders;
    if (!all.length) return fill(list, empty("There is no such order.", "This customer has none, or none that was placed then. Ids count as they are written.", q.from || q.to ? h("a", { class: "button", href: href("/orders", { customer: q.customer }) }, "At any time") : null));
    return fill(list, table(all), h("div", { class: "row between pager" },
      h("span", { class: "muted" }, `${plural(all.length, "order")}, newest first${q.cursor ? `, page ${trail.length + 2}` : ""}`),
      h("div", { class: "row" },
        q.cursor && h("button", { type: "button", class: "button", "data-key": "back", onclick: back }, "Newer"),
        page.next && h("button", { type: "button", class: "button", "data-key": "next", onclick: forward }, "Older"))));
  }

  const forward = () => change({ cursor: page.next, trail: q.cursor ? [...trail, q.cursor].join(" ") : "" });
  const back = () => change(trail.length ? { cursor: trail[trail.length - 1], trail: trail.slice(0, -1).join(" ") } : {});
  keys.onPage("/", "filter by customer", () => form.first.focus());
  keys.onPage("n", "older orders", () => page?.next && forward());
  keys.onPage("p", "newer orders", () => q.cursor && back());
  ctx.every(5000, read);
  read();
}

const table = (all) => h("div", { class: "scroll", role: "region", "aria-label": "Orders", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Orders, newest first"),
  h("thead", null, h("tr", null, ["Order", "Status", "Total", "Lines", "Country", "Reference", "Version", "Placed"].map((t) => h("th", { scope: "col", class: numbers.has(t) ? "num" : null }, t)))),
  h("tbody", null, all.map((o) => h("tr", { "data-id": o.id },
    h("td", { "data-label": "Order" }, h("a", { class: "mono", href: href(`/orders/${o.id}`), title: o.id, "data-key": `row-${o.id}` }, short(o.id))),
    h("td", { "data-label": "Status" }, mark(orderStates, o.status)),
    h("td", { "data-label": "Total", class: "num nowrap" }, `${o.total} ${o.currency}`),
    h("td", { "data-label": "Lines", class: "num" }, count(o.lines)),
    h("td", { "data-label": "Country" }, h("span", { class: "clip" }, visible(o.country))),
    h("td", { "data-label": "Reference" }, h("span", { class: "clip" }, visible(o.invoice ?? "–"))),
    h("td", { "data-label": "Version", class: "num" }, count(o.version)),
    h("td", { "data-label": "Placed", class: "nowrap" }, ago(o.placed_at)))))));

const numbers = new Set(["Total", "Lines", "Version"]);

function filters(q, change) {
  const set = (name) => (e) => { const v = e.target.value.trim(); if (v !== (q[name] ?? "")) change({ [name]: v }); };
  const customer = h("input", { type: "text", name: "customer", value: q.customer ?? "", placeholder: "its id", spellcheck: "false", autocomplete: "off", maxlength: 64, onchange: set("customer"), "data-key": "f-customer" });
  const recent = !q.to && (!q.from || days[q.from]);
  const time = (name, label) => h("label", null, label, h("input", { type: "datetime-local", name, value: days[q[name]] ? "" : (q[name] ?? "").slice(0, 16), "data-key": `f-${name}`, onchange: (e) => change({ [name]: e.target.value ? `${e.target.value.slice(0, 16)}:00Z` : "" }) }));
  const el = h("form", { class: "panel filters", role: "search", "aria-label": "Filter orders", onsubmit: (e) => { e.preventDefault(); document.activeElement?.blur(); } },
    h("label", null, "Customer", customer),
    h("label", null, "Placed", h("select", { name: "within", value: recent ? q.from ?? "" : "between", "data-key": "f-within", onchange: (e) => change(e.target.value === "between" ? { from: `${new Date(Date.now() - 7 * 86400_000).toISOString().slice(0, 16)}:00Z`, to: "" } : { from: e.target.value, to: "" }) },
      h("option", { value: "" }, "ever"), h("option", { value: "1d" }, "in a day"), h("option", { value: "7d" }, "in a week"), h("option", { value: "30d" }, "in 30 days"), h("option", { value: "365d" }, "in a year"), h("option", { value: "between" }, "between…"))),
    !recent && [time("from", "From (UTC)"), time("to", "Before (UTC)")],
    fields.some((k) => q[k]) && h("a", { class: "button quiet clear", href: href("/orders"), "data-key": "clear" }, "Clear"));
  return { el, first: customer };
}
