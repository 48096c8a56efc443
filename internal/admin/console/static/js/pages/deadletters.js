// All dead letters: filters in the address, choosing several, pages.
import { act, buttons, possible } from "../act.js";
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { exportList } from "../export.js";
import { ago, count, known, short, visible } from "../format.js";
import * as keys from "../keys.js";
import { chooser, listing, since } from "../listing.js";
import { badge, empty, loading } from "../parts.js";
import { go, href } from "../router.js";
import { sorter } from "../sort.js";
import { open, outcomes, statuses } from "../words.js";
import { search } from "./aggregate.js";

const fields = ["status", "error_class", "error_code", "outcome", "event_type", "aggregate_id", "table", "tag", "min_priority", "text", "since", "until"];

// asked is the filter as the API has it.
function asked(q) {
  const f = {};
  for (const k of fields) if (q[k]) f[k] = q[k];
  if (f.status === "open") f.status = open.join(",");
  f.since = since(f.since);
  return f;
}

// filterOf is the same for a preview or a job.
function filterOf(q) {
  const f = asked(q);
  if (f.status) f.status = f.status.split(",");
  if (f.tag) f.tags = f.tag.split(",");
  delete f.tag;
  if (f.min_priority) f.min_priority = Number(f.min_priority);
  return f;
}

// totalOf is the number of dead letters that the filter finds, if the counts contain it.
function totalOf(s, q) {
  const by = fields.filter((k) => q[k] && k !== "status"), [only] = by;
  if (!s || by.length > 1) return null;
  if (!by.length) return !q.status ? s.total : q.status === "open" ? s.open : s.by_status?.[q.status] ?? null;
  const counts = { error_class: s.open_by_error_class, event_type: s.open_by_event_type }[only];
  return q.status === "open" && counts ? counts[q[only]] ?? 0 : null;
}

export function deadLetters(ctx) {
  ctx.title("Dead letters");
  const all = listing("/dead-letters", fields, "dead letters"), { q } = all;
  let page = null, stats = null;
  const list = h("div", null, loading("dead letters")), chosen = chooser(list, ["dead letter", "dead letters"], draw), order = sorter(draw);
  fill(ctx.el, h("div", { class: "stack" }, h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Dead letters"), search()), filters(all), list), chosen.bar);
  const counted = (s) => { const before = totalOf(stats, q); stats = s; if (page && totalOf(s, q) !== before) draw(); };

  const read = ctx.reader(async () => {
    page = await api.deadLetters({ ...asked(q), limit: 50, cursor: q.cursor }, ctx.signal);
    chosen.keep(page.dead_letters.map((l) => l.event_id));
    draw();
  }, list);

  function draw() {
    const deadLetters = page.dead_letters, total = page.next || q.cursor ? totalOf(stats, q) : null;
    if (!deadLetters.length) {
      fill(list, all.filtered || q.cursor
        ? empty("No dead letter matches.", "It may have been settled since, or the filter is too narrow.", h("a", { class: "button", href: href("/dead-letters") }, "Show all dead letters"))
        : empty("There are no dead letters.", "An event that the relay cannot publish is listed here with its error.", h("a", { class: "button", href: href("/") }, "To the overview")));
    } else {
      fill(list, h("div", { class: "row" }, h("span", { class: "grow" }), h("button", { type: "button", class: "button quiet", "data-key": "export", onclick: () => exportList(asked(q)) }, "Export…")), table(deadLetters, chosen, order), all.pager(page, deadLetters.length, ["dead letter"], "newest first", total));
    }
    const here = deadLetters.filter((l) => chosen.has(l.event_id));
    chosen.show(here.length === deadLetters.length && (page.next || q.cursor), () => {
      const names = possible(here.map((l) => l.status));
      return names.length ? buttons(names, run) : h("span", { class: "muted" }, possible(open).length ? "All of these are settled." : "Your role is read-only.");
    });
  }

  function run(action) {
    act(action, chosen.target(filterOf(q)), (job) => { chosen.clear(); if (job?.id) go(`/jobs/${job.id}`); else read(); });
  }

  ctx.on(["status"], (s) => counted(s.dead_letters));
  ctx.soon(["dead_letters"], read);
  api.stats(ctx.signal).then((s) => { counted(s); list.after(values("error_class", s.open_by_error_class), values("event_type", s.open_by_event_type)); }).catch(() => { /* it only counts, and helps typing */ });
  for (const [key, name] of [["r", "replay"], ["d", "discard"]]) keys.onPage(key, `${name} what is chosen`, () => chosen.bar.querySelector(`[data-key="act-${name}"]`)?.click());
  read();
}

// columns are those of the table; the rows of a page are sorted by them.
const columns = [["Event"], ["Status", (l) => l.status + (l.resolved_by ?? "")], ["Priority", (l) => l.priority ?? 0, true], ["Error", (l) => l.error_class], ["Type", (l) => l.event_type], ["Aggregate", (l) => l.aggregate_id],
  ["Attempts", (l) => l.attempts, true], ["Failed", (l) => l.first_failed_at], ["Next attempt", (l) => (l.status !== "pending" ? null : known(l.next_attempt) ? l.next_attempt : "0")]];

function table(deadLetters, chosen, order) {
  return h("div", { class: "scroll", role: "region", "aria-label": "Dead letters, newest first", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Dead letters, newest first"),
    h("thead", null, h("tr", null, chosen.head(deadLetters.map((l) => l.event_id)),
      order.head(columns))),
    h("tbody", null, order.rows(deadLetters, columns).map((l) => h("tr", { "data-id": l.event_id, class: chosen.has(l.event_id) ? "picked" : null }, chosen.cell(l.event_id),
      h("td", { "data-label": "Event" }, h("a", { class: "mono", href: href(`/dead-letters/${l.event_id}`), title: l.event_id, "data-key": `row-${l.event_id}` }, short(l.event_id))),
      h("td", { "data-label": "Status" }, badge(l.status, l.unblocked, l.resolved_by)),
      h("td", { "data-label": "Priority", class: "num", title: (l.tags ?? []).join(", ") }, String(l.priority ?? 0), (l.tags ?? []).length > 0 && h("span", { class: "muted" }, ` ${l.tags.join(", ")}`)),
      h("td", { "data-label": "Error" }, h("span", { class: "clip", title: l.error_class }, l.error_class), l.failure_repeats > 1 && h("span", { class: "muted", title: "Consecutive failures with the same error" }, ` ×${count(l.failure_repeats)}`), l.error_excerpt && h("div", null, h("span", { class: "small muted clip wide", title: visible(l.error_excerpt) }, visible(l.error_excerpt)))),
      h("td", { "data-label": "Type" }, h("span", { class: "clip" }, l.event_type)),
      h("td", { "data-label": "Aggregate" }, h("a", { class: "mono", href: href(`/aggregates/${encodeURIComponent(l.aggregate_id)}`), title: l.aggregate_id, "data-key": `of-${l.event_id}` }, short(l.aggregate_id)), l.sequence ? h("span", { class: "muted" }, ` #${count(l.sequence)}`) : null),
      h("td", { "data-label": "Attempts", class: "num" }, count(l.attempts)),
      h("td", { "data-label": "Failed", class: "nowrap" }, ago(l.first_failed_at)),
      h("td", { "data-label": "Next attempt", class: "nowrap", title: l.waits_for }, l.status === "pending" && !known(l.next_attempt) ? "immediately" : ago(l.next_attempt)))))));
}

function filters(all) {
  const { q } = all, typed = (name, label, placeholder) => all.text(name, label, { placeholder, list: `known-${name}` });
  return all.form("Filter dead letters", "aggregate_id",
    all.choice("status", "Status", h("option", { value: "open" }, "open"), statuses.map((s) => h("option", { value: s }, s)), q.status && q.status !== "open" && !statuses.includes(q.status) && h("option", { value: q.status }, q.status)),
    all.choice("outcome", "Outcome", Object.entries(outcomes).map(([v, [says]]) => h("option", { value: v }, says))),
    all.text("text", "Contains", { placeholder: "any text", title: "In the error, the type or the aggregate", maxlength: 200 }), typed("error_class", "Error class", "any"), typed("event_type", "Event type", "any"), typed("aggregate_id", "Aggregate", "its id"), all.text("table", "Table or subscription", { placeholder: "subscription.NAME" }), all.text("tag", "Tags", { placeholder: "vip,night" }),
    all.text("min_priority", "Least priority", { type: "number", min: -100, max: 100 }),
    all.period("Failed", "since", "until", [["", "any time"], ["1h", "in the last hour"], ["6h", "in 6 hours"], ["24h", "in a day"], ["7d", "in a week"]]));
}

const values = (name, map) => h("datalist", { id: `known-${name}` }, Object.keys(map ?? {}).map((v) => h("option", { value: v }, count(map[v]))));
