// All letters: filters that stand in the address, choosing many, pages.
import { act, buttons, possible } from "../act.js";
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { count, plural } from "../format.js";
import * as keys from "../keys.js";
import { empty, failed, finder, loading } from "../parts.js";
import { go, href, query } from "../router.js";
import { letterTable } from "../table.js";
import { open, statuses } from "../words.js";

const fields = ["status", "error_class", "event_type", "aggregate", "since", "until"];
const hours = { "1h": 1, "6h": 6, "24h": 24, "7d": 168 };

// asked is the filter as the API has it.
function asked(q) {
  const f = {};
  for (const k of fields) if (q[k]) f[k] = q[k];
  if (f.status === "open") f.status = open.join(",");
  if (hours[f.since]) f.since = new Date(Date.now() - hours[f.since] * 3600_000).toISOString();
  return f;
}

// filterOf is the same for a preview or a job.
function filterOf(q) {
  const f = asked(q);
  if (f.status) f.status = f.status.split(",");
  return f;
}

export function letters(ctx) {
  ctx.title("Letters");
  const q = query();
  const trail = (q.trail ?? "").split(" ").filter(Boolean); // cursors of the pages before
  const picked = new Set();
  let page = null, whole = false;
  const list = h("div", null, loading("letters")), selection = h("div", { class: "selection", role: "region", "aria-label": "What is chosen" });

  const change = (next) => go(hrefOf({ ...pick(q), ...next }));
  const hrefOf = (f) => href("/letters", f).slice("/console".length);
  const form = filters(q, change);
  fill(ctx.el, h("div", { class: "stack" }, h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Letters"), finder("Open an event by its id", "event id", (id) => go(`/events/${id}`))), form.el, list), selection);

  async function read() {
    try {
      page = await api.letters({ ...asked(q), limit: 50, cursor: q.cursor }, ctx.signal);
    } catch (err) {
      if (!ctx.signal.aborted && !page) fill(list, failed(err, read));
      return;
    }
    const here = new Set(page.letters.map((l) => l.event_id));
    for (const id of picked) if (!here.has(id)) picked.delete(id);
    draw();
  }

  function draw() {
    const all = page.letters, filtered = fields.some((k) => q[k]);
    if (!all.length) {
      fill(list, filtered || q.cursor
        ? empty("No letter matches.", "None is like this now. It may have been settled meanwhile, or the filter is too narrow.", h("a", { class: "button", href: href("/letters") }, "Show all letters"))
        : empty("There are no dead letters.", "Every event that was stored has been published or is on its way. When one cannot be, it is here, with the reason.", h("a", { class: "button", href: href("/") }, "To the overview")));
    } else {
      fill(list, letterTable(all, { picked, onpick: () => { whole = false; draw(); }, caption: "Letters, newest first" }),
        h("div", { class: "row between pager" }, h("span", { class: "muted" }, `${plural(all.length, "letter")}, newest first${trail.length || q.cursor ? `, page ${trail.length + 2}` : ""}`),
          h("div", { class: "row" },
            q.cursor && h("button", { type: "button", class: "button", "data-key": "back", onclick: back }, "Newer"),
            page.next && h("button", { type: "button", class: "button", "data-key": "next", onclick: forward }, "Older"))));
    }
    choose();
  }

  // The bar for what is chosen; it stays in sight.
  function choose() {
    if (!picked.size) { whole = false; return fill(selection); }
    const chosen = page.letters.filter((l) => picked.has(l.event_id));
    const names = possible(chosen.map((l) => l.status));
    const more = picked.size === page.letters.length && (page.next || q.cursor);
    return fill(selection, h("div", { class: "selection-in" },
      h("span", { class: "grow" }, h("b", null, whole ? "All that match the filter" : plural(picked.size, "letter")), whole ? "" : " chosen",
        more && h("button", { type: "button", class: "link", "data-key": "whole", onclick: () => { whole = !whole; choose(); } }, whole ? "only this page" : "choose all that match the filter")),
      names.length ? buttons(names, run) : h("span", { class: "muted" }, possible(open).length ? "All of these are settled." : "Your role may look, and change nothing."),
      h("button", { type: "button", class: "button quiet", "data-key": "none", onclick: () => { picked.clear(); draw(); } }, "Clear")));
  }

  function run(action) {
    const f = filterOf(q);
    act(action, whole ? { filter: f } : { ids: [...picked] }, (job) => { picked.clear(); if (job?.id) go(`/jobs/${job.id}`); else read(); });
  }

  const forward = () => change({ cursor: page.next, trail: q.cursor ? [...trail, q.cursor].join(" ") : "" });
  const back = () => change(trail.length ? { cursor: trail[trail.length - 1], trail: trail.slice(0, -1).join(" ") } : {});

  ctx.soon(["letters"], read);
  const rows = () => [...list.querySelectorAll("tbody tr")];
  const step = (by) => {
    const all = rows(), at = all.findIndex((r) => r.contains(document.activeElement));
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]?.querySelector("a")?.focus();
  };
  keys.onPage("/", "filter by aggregate", () => form.first.focus());
  keys.onPage("j", "next letter", () => step(1));
  keys.onPage("k", "letter before", () => step(-1));
  keys.onPage("x", "choose the letter", () => rows().find((r) => r.contains(document.activeElement))?.querySelector("input")?.click());
  keys.onPage("n", "older letters", () => page?.next && forward());
  keys.onPage("p", "newer letters", () => q.cursor && back());
  for (const [key, name] of [["r", "replay"], ["d", "discard"]]) keys.onPage(key, `${name} what is chosen`, () => selection.querySelector(`[data-key="act-${name}"]`)?.click());
  read();
}

const pick = (q) => Object.fromEntries(fields.map((k) => [k, q[k]]));

// filters is the form; what is chosen acts at once, what is typed on Enter or on leaving.
function filters(q, change) {
  const set = (name) => (e) => { const v = e.target.value.trim(); if (v !== (q[name] ?? "")) change({ [name]: v }); };
  const text = (name, label, placeholder) => h("label", null, label, h("input", { type: "text", name, value: q[name] ?? "", placeholder, spellcheck: "false", autocomplete: "off", list: `known-${name}`, onchange: set(name), "data-key": `f-${name}` }));
  const first = text("aggregate", "Aggregate", "its id");
  const since = hours[q.since] || !q.since;
  const el = h("form", { class: "panel filters", role: "search", "aria-label": "Filter letters", onsubmit: (e) => { e.preventDefault(); document.activeElement?.blur(); } },
    h("label", null, "Status", h("select", { name: "status", value: q.status ?? "", onchange: set("status"), "data-key": "f-status" },
      h("option", { value: "" }, "any"), h("option", { value: "open" }, "open"), statuses.map((s) => h("option", { value: s }, s)), q.status && q.status !== "open" && !statuses.includes(q.status) && h("option", { value: q.status }, q.status))),
    text("error_class", "Error class", "any"), text("event_type", "Event type", "any"), first,
    h("label", null, "Died", h("select", { name: "within", value: since ? q.since ?? "" : "from", "data-key": "f-within", onchange: (e) => change({ since: e.target.value === "from" ? new Date(Date.now() - 86400_000).toISOString().slice(0, 16) + "Z" : e.target.value, until: e.target.value === "from" ? q.until : "" }) },
      h("option", { value: "" }, "ever"), h("option", { value: "1h" }, "in the last hour"), h("option", { value: "6h" }, "in 6 hours"), h("option", { value: "24h" }, "in a day"), h("option", { value: "7d" }, "in a week"), h("option", { value: "from" }, "between…"))),
    !since && [timeField("since", "From (UTC)"), timeField("until", "Until (UTC)")],
    fields.some((k) => q[k]) && h("a", { class: "button quiet clear", href: href("/letters"), "data-key": "clear" }, "Clear filters"));
  api.stats().then((s) => el.append(known("error_class", s.open_by_error_class ?? s.open_by_class), known("event_type", s.open_by_event_type ?? s.open_by_type))).catch(() => { /* it only helps typing */ });
  function timeField(name, label) {
    return h("label", null, label, h("input", { type: "datetime-local", name, value: (q[name] ?? "").replace(/Z$/, "").slice(0, 16), "data-key": `f-${name}`, onchange: (e) => change({ [name]: e.target.value ? `${e.target.value.slice(0, 16)}:00Z` : "" }) }));
  }
  return { el, first: first.querySelector("input") };
}

const known = (name, map) => h("datalist", { id: `known-${name}` }, Object.keys(map ?? {}).map((v) => h("option", { value: v }, count(map[v]))));
