// A customer's orders, by the time they were placed.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, short, visible } from "../format.js";
import { listing, since } from "../listing.js";
import { empty, finder, loading, mark, panel } from "../parts.js";
import { go, href } from "../router.js";
import { sorter } from "../sort.js";
import { orderStates } from "../words.js";

const fields = ["customer", "since", "until"];

export function orders(ctx) {
  ctx.title("Orders");
  const all = listing("/orders", fields, "orders"), { q } = all;
  const list = h("div"), order = sorter(draw);
  fill(ctx.el, h("div", { class: "stack" },
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Orders"), finder("Open an order by its id", "order id", (id) => go(`/orders/${id}`))), filters(all), list));
  let page = null;

  const read = ctx.reader(async () => {
    if (!q.customer) return readNewest();
    if (!page) fill(list, loading("orders"));
    const now = await api.orders({ customer_id: q.customer, since: since(q.since), until: q.until, limit: 50, cursor: q.cursor }, ctx.signal);
    if (JSON.stringify(now) === JSON.stringify(page)) return undefined;
    page = now;
    return draw();
  }, list);

  // readNewest lists the orders of the newest events: the tables list orders by customer alone.
  async function readNewest() {
    const found = await api.events({ limit: 200 }, ctx.signal).then((r) => r.events, () => null);
    if (ctx.signal.aborted) return;
    const newest = (found ?? []).filter((e, i) => e.event_type.startsWith("Order") && found.findIndex((x) => x.aggregate_id === e.aggregate_id) === i).slice(0, 20);
    fill(list, h("div", { class: "stack" }, empty("Enter a customer id.", "Orders are listed by customer. An order without one is opened by its own id."),
      !found && h("p", { class: "muted" }, "The newest orders cannot be read at the moment."),
      newest.length > 0 && panel("Newest orders", { aside: h("span", { class: "small muted" }, "by their last events") }, h("ul", { class: "plain" }, newest.map((e) => h("li", null,
        h("a", { class: "mono", href: href(`/orders/${e.aggregate_id}`), title: e.aggregate_id, "data-key": `newest-${e.aggregate_id}` }, short(e.aggregate_id)), " ", visible(e.event_type), " ", h("span", { class: "muted" }, ago(e.written_at))))))));
  }

  function draw() {
    const orders = page.orders;
    if (!orders.length) return fill(list, empty("There is no such order.", "This customer has none in this period. Ids are case-sensitive.", q.since || q.until ? h("a", { class: "button", href: href("/orders", { customer: q.customer }) }, "At any time") : null));
    return fill(list, table(orders, order), all.pager(page, orders.length, ["order"], "newest first"));
  }

  ctx.every(5000, read);
  read();
}

// columns are those of the table, in which totals of several currencies sort by their numbers.
const columns = [["Order"], ["Status", (o) => o.status], ["Total", (o) => Number(o.total), true], ["Lines", (o) => o.lines, true], ["Country", (o) => o.country], ["Reference", (o) => o.invoice], ["Version", (o) => o.version, true],
  ["Placed", (o) => Date.parse(o.placed_at)]];

const table = (all, order) => h("div", { class: "scroll", role: "region", "aria-label": "Orders", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Orders, newest first"),
  h("thead", null, h("tr", null, order.head(columns))),
  h("tbody", null, order.rows(all, columns).map((o) => h("tr", { "data-id": o.id },
    h("td", { "data-label": "Order" }, h("a", { class: "mono", href: href(`/orders/${o.id}`), title: o.id, "data-key": `row-${o.id}` }, short(o.id))),
    h("td", { "data-label": "Status" }, mark(orderStates, o.status)),
    h("td", { "data-label": "Total", class: "num nowrap" }, `${o.total} ${o.currency}`),
    h("td", { "data-label": "Lines", class: "num" }, count(o.lines)),
    h("td", { "data-label": "Country" }, h("span", { class: "clip" }, visible(o.country))),
    h("td", { "data-label": "Reference" }, h("span", { class: "clip" }, visible(o.invoice ?? "–"))),
    h("td", { "data-label": "Version", class: "num" }, count(o.version)),
    h("td", { "data-label": "Placed", class: "nowrap" }, ago(o.placed_at)))))));

const filters = (all) => all.form("Filter orders", "customer", all.text("customer", "Customer", { placeholder: "its id", maxlength: 64 }),
  all.period("Placed", "since", "until", [["", "any time"], ["1d", "in a day"], ["7d", "in a week"], ["30d", "in 30 days"], ["365d", "in a year"]], { ago: 168, ends: "Before (UTC)" }));
