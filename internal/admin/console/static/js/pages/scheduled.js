// Scheduled messages.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, short, stamp, visible } from "../format.js";
import { listing, until } from "../listing.js";
import { changeMany } from "../many.js";
import { empty, finder, loading } from "../parts.js";
import { go, href } from "../router.js";
import { may } from "../session.js";
import { sorter } from "../sort.js";
import { serverTime } from "../time.js";

const fields = ["topic", "key", "client", "since", "until"];
const looks = 5; // pages that may come back empty before somebody has to ask for more

export function scheduled(ctx) {
  ctx.title("Scheduled");
  const all = listing("/scheduled", fields, "messages", ["Earlier", "Later"]), { q } = all;
  const list = h("div", null, loading("what waits")), order = sorter(draw);
  fill(ctx.el, h("div", { class: "stack" },
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Scheduled messages"), finder("Open a message by its id", "message id", (id) => go(`/scheduled/${id}`))), filters(all), all.filtered && many(), list));
  let page = null;

  // many are the actions on all that match.
  function many() {
    if (!may("deliver-message-now")) return null;
    const run = (kind) => () => ask(changeMany(kind, { topic: q.topic, key: q.key, client: q.client, since: q.since, until: until(q.until) }, read));
    return h("div", { class: "row" }, h("span", { class: "grow muted" }, "All that match, on every page:"),
      h("div", { class: "row" }, // side by side on a narrow screen, too
        h("button", { type: "button", class: "button", "data-key": "act-deliver-many-now", onclick: run("deliver-now") }, "Deliver now…"),
        h("button", { type: "button", class: "button danger", "data-key": "act-cancel-many", onclick: run("cancel") }, "Cancel…")));
  }

  const read = ctx.reader(async () => {
    let cursor = q.cursor, now;
    for (let n = 0; n < looks; n++) {
      now = await api.messages({ state: "scheduled", topic: q.topic, key: q.key, client: q.client, since: q.since, until: until(q.until), limit: 50, cursor }, ctx.signal);
      if (now.messages.length || !now.next) break;
      cursor = now.next;
    }
    if (JSON.stringify(now) === JSON.stringify(page)) return;
    page = now;
    draw();
  }, list);

  function draw() {
    const messages = page.messages;
    if (!messages.length && !page.next) {
      return fill(list, all.filtered || q.cursor
        ? empty("No scheduled message matches.", "It may have been delivered or cancelled, or the filter is too narrow.", h("a", { class: "button", href: href("/scheduled"), "data-key": "all" }, "Show all scheduled messages"))
        : empty("There are no scheduled messages.", "Messages with delay or deliver_at are listed here until they are due."));
    }
    return fill(list, messages.length ? table(messages, order) : h("p", { class: "muted" }, "None so far; the search continues on the next page."), all.pager(page, messages.length, ["message"], "next due first"));
  }

  ctx.every(5000, read);
  read();
}

const columns = [["Message"], ["Topic", (m) => m.topic], ["Key", (m) => m.key], ["Due", (m) => Date.parse(m.deliver_at)], ["At"], ["Accepted", (m) => Date.parse(m.created_at)]];

const table = (all, order) => h("div", { class: "scroll", role: "region", "aria-label": "Scheduled messages", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Scheduled messages, next due first"),
  h("thead", null, h("tr", null, order.head(columns))),
  h("tbody", null, order.rows(all, columns).map((m) => h("tr", { "data-id": m.id },
    h("td", { "data-label": "Message" }, h("a", { class: "mono", href: href(`/scheduled/${m.id}`), title: m.id, "data-key": `row-${m.id}` }, short(m.id))),
    h("td", { "data-label": "Topic" }, h("span", { class: "clip wide", title: m.topic }, visible(m.topic))),
    h("td", { "data-label": "Key" }, h("span", { class: "clip" }, m.key ? visible(m.key) : "–")),
    h("td", { "data-label": "Due", class: "nowrap" }, Date.parse(m.deliver_at) < serverTime() ? h("span", { class: "warn-text" }, "overdue, ", ago(m.deliver_at)) : ago(m.deliver_at)),
    h("td", { "data-label": "At", class: "nowrap" }, stamp(m.deliver_at).replace(/\.\d+Z$/, "Z")),
    h("td", { "data-label": "Accepted", class: "nowrap" }, ago(m.created_at)))))));

const filters = (all) => all.form("Filter messages", "topic", all.text("topic", "Topic"), all.text("key", "Key"), all.text("client", "Client"),
  all.period("Due", "since", "until", [["", "at any time"], ["1h", "within an hour"], ["24h", "within a day"], ["7d", "within a week"], ["30d", "within 30 days"]], { ahead: true, ago: 0 }));
