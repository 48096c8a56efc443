// The newest events of the outbox: those that wait, and recent ones.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, short, stamp, visible } from "../format.js";
import { listing } from "../listing.js";
import { empty, loading, mark } from "../parts.js";
import { href } from "../router.js";
import { sorter } from "../sort.js";
import { eventStates } from "../words.js";
import { place, search } from "./aggregate.js";

export function events(ctx) {
  ctx.title("Events");
  const all = listing("/events", ["state"], "events"), { q } = all;
  const list = h("div", { class: "stack" }, loading("the newest events")), order = sorter(draw);
  fill(ctx.el, h("div", { class: "stack" }, h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Events"), search()),
    all.form("Filter events", "state", all.choice("state", "State", Object.keys(eventStates).map((s) => h("option", { value: s }, s.replace("_", " "))))), list));
  let page = null;

  const read = ctx.reader(async () => {
    const now = await api.events({ state: q.state, limit: 100, cursor: q.cursor }, ctx.signal);
    if (page && JSON.stringify([now.events, now.gaps]) === JSON.stringify([page.events, page.gaps])) return;
    page = now;
    draw();
  }, list);

  function draw() {
    fill(list, page.gaps.map((g) => h("p", { class: "callout warn break" }, visible(g))), page.events.length || q.cursor ? [table(page.events, order), all.pager(page, page.events.length, ["event"], "newest first")]
      : empty(q.state ? `No event since ${stamp(page.since)} is ${q.state.replace("_", " ")}.` : "There are no recent events.", "Events of the last hour are listed here, and those that wait since the last heartbeat of a relay.", h("a", { class: "button", href: href("/") }, "To the overview")));
  }

  ctx.every(5000, read);
  read();
}

const columns = [["Event"], ["State", (e) => e.state], ["Type", (e) => e.event_type], ["Aggregate", (e) => e.aggregate_id], ["Written", (e) => Date.parse(e.written_at)], ["Place"]];

const table = (all, order) => h("div", { class: "scroll", role: "region", "aria-label": "Newest events", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Events, newest first"),
  h("thead", null, h("tr", null, order.head(columns))),
  h("tbody", null, order.rows(all, columns).map((e) => h("tr", { "data-id": e.event_id },
    h("td", { "data-label": "Event" }, h("a", { class: "mono", href: href(e.dead_letter_id ? `/dead-letters/${e.dead_letter_id}` : `/events/${encodeURIComponent(e.event_id)}`), title: e.event_id, "data-key": `row-${e.event_id}` }, short(e.event_id))),
    h("td", { "data-label": "State" }, mark(eventStates, e.state)),
    h("td", { "data-label": "Type" }, h("span", { class: "clip" }, visible(e.event_type))),
    h("td", { "data-label": "Aggregate" }, h("a", { class: "mono", href: href(`/aggregates/${encodeURIComponent(e.aggregate_id)}`), title: e.aggregate_id, "data-key": `of-${e.event_id}` }, short(e.aggregate_id)), e.sequence ? h("span", { class: "muted" }, ` #${count(e.sequence)}`) : null),
    h("td", { "data-label": "Written", class: "nowrap" }, ago(e.written_at)),
    h("td", { "data-label": "Place" }, h("span", { class: "small break" }, place(e)?.[1] ?? "–")))))));
