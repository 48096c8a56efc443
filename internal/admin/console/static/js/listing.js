// Lists whose filter and page are in the address, and the choosing of rows.
import { h, fill } from "./dom.js";
import { count, plural } from "./format.js";
import * as keys from "./keys.js";
import { go, href, query } from "./router.js";
import { serverTime } from "./time.js";
import { savedViews } from "./views.js";

// hours are how long the spans of time are that a filter can name.
const hours = { "1h": 1, "6h": 6, "1d": 24, "24h": 24, "7d": 168, "30d": 720, "365d": 8760 };

const away = (v, ms) => (hours[v] ? new Date(serverTime() + ms * hours[v]).toISOString() : v);
// since and until are the time that a filter means by a span, or names.
export const since = (v) => away(v, -3600_000);
export const until = (v) => away(v, 3600_000);

const minute = (ms) => `${new Date(ms).toISOString().slice(0, 16)}:00Z`;

// listing is the list of things at path as the address asks for it: q. fields are
// the names of what it can be filtered by, before and after what the pages beside
// one are called.
export function listing(path, fields, things, [before, after] = ["Newer", "Older"]) {
  const q = query();
  const trail = (q.trail ?? "").split(" ").filter(Boolean); // cursors of the pages before
  const sizes = (q.sizes ?? "").split(" ").filter(Boolean); // how many rows these have
  let next = "", size = 0;
  const filtered = fields.some((k) => q[k]);
  const current = Object.fromEntries(fields.map((k) => [k, q[k]]));
  const change = (to) => go(href(path, { ...current, ...to }).slice("/console".length));
  const forward = () => change({ cursor: next, trail: q.cursor ? [...trail, q.cursor].join(" ") : "", sizes: [...sizes, size].join(" ") });
  const back = () => change(trail.length ? { cursor: trail.at(-1), trail: trail.slice(0, -1).join(" "), sizes: sizes.slice(0, -1).join(" ") } : {});
  // set acts at once on what is chosen, on Enter or on leaving on what is typed.
  const set = (name) => (e) => { const v = e.target.value.trim(); if (v !== (q[name] ?? "")) change({ [name]: v }); };

  const text = (name, label, more) => h("label", null, label, h("input", { type: "text", name, value: q[name] ?? "", placeholder: "any", spellcheck: "false", autocomplete: "off", onchange: set(name), "data-key": `f-${name}`, ...more }));

  const choice = (name, label, ...options) => h("label", null, label, h("select", { name, value: q[name] ?? "", onchange: set(name), "data-key": `f-${name}` }, h("option", { value: "" }, "any"), options));

  const time = (name, label) => h("label", null, label, h("input", { type: "datetime-local", name, value: hours[q[name]] ? "" : (q[name] ?? "").slice(0, 16), "data-key": `f-${name}`, onchange: (e) => change({ [name]: e.target.value ? `${e.target.value.slice(0, 16)}:00Z` : "" }) }));

  // period chooses a span that is over now, or with ahead begins now, or asks for both
  // ends: the fields begin and end. spans are pairs of a span and its name; the first,
  // "", is any time. ago is how many hours ago the time between two ends begins at first.
  const period = (label, begin, end, spans, { ahead = false, ago = 24, ends = "Until (UTC)" } = {}) => {
    const [named, other] = ahead ? [end, begin] : [begin, end];
    const near = !q[other] && (!q[named] || hours[q[named]]);
    const chosen = (e) => change(e.target.value === "between" ? { [begin]: minute(serverTime() - ago * 3600_000), [end]: "" } : { [named]: e.target.value, [other]: "" });
    return [
      h("label", null, label, h("select", { name: "within", value: near ? q[named] ?? "" : "between", "data-key": "f-within", onchange: chosen },
        spans.map(([v, says]) => h("option", { value: v }, says)), h("option", { value: "between" }, "between…"))),
      !near && [time(begin, "From (UTC)"), time(end, ends)],
    ];
  };

  // form holds the fields, of which first is reached by the key "/".
  const form = (label, first, ...content) => {
    const el = h("form", { class: "panel filters", role: "search", "aria-label": label, onsubmit: (e) => { e.preventDefault(); document.activeElement?.blur(); } },
      content, savedViews(path, current), filtered && h("a", { class: "button quiet clear", href: href(path), "data-key": "clear" }, "Clear filters"));
    keys.onPage("/", `filter by ${first}`, () => el.querySelector(`[name=${first}]`).focus());
    return el;
  };

  // pager is the line below a page of n rows: which they are, of how many, their order,
  // and the ways to the pages beside it. The API counts few lists, so without a total the
  // last page shows it, and the others what it exceeds.
  const pager = (page, n, [one, many], order, total = null) => {
    next = page.next; size = n;
    const before = sizes.reduce((sum, s) => sum + (Number(s) || 0), 0), upTo = before + n;
    const all = total !== null ? plural(total, one, many) : `${next ? "more than " : ""}${plural(upTo, one, many)}`;
    const here = !n ? "none on this page" : !next && !q.cursor ? plural(n, one, many) : `${n > 1 ? `${count(before + 1)}–` : ""}${count(upTo)} of ${all}`;
    return h("div", { class: "row between pager" }, h("span", { class: "muted" }, `${here}, ${order}${q.cursor ? `, page ${trail.length + 2}` : ""}`),
      h("div", { class: "row" },
        q.cursor && h("button", { type: "button", class: "button", "data-key": "back", onclick: back }, before),
        next && h("button", { type: "button", class: "button", "data-key": "next", onclick: forward }, after)));
  };
  keys.onPage("n", `${after.toLowerCase()} ${things}`, () => next && forward());
  keys.onPage("p", `${before.toLowerCase()} ${things}`, () => q.cursor && back());

  return { q, filtered, text, choice, time, period, form, pager };
}

// chooser is which rows of a list are chosen, by their ids. one and many name a row
// and several; redraw draws the list, and calls show.
export function chooser(list, [one, many], redraw) {
  const ids = new Set();
  let last = null; // the row whose box was used last
  const bar = h("div", { class: "selection", role: "region", "aria-label": "What is chosen" });
  let whole = false; // all that match the filter, also those of other pages
  const rows = () => [...list.querySelectorAll("tbody tr")];
  // reach returns the ids from the row whose box was used last to this one, in the order of the list.
  const reach = (id) => {
    const all = rows().map((r) => r.dataset.id), [a, b] = [all.indexOf(last), all.indexOf(id)].sort((x, y) => x - y);
    return a < 0 ? [id] : all.slice(a, b + 1);
  };
  let shift = false; // a change event does not have it
  const box = (says, key, here, on, indeterminate) => h("input", { type: "checkbox", "aria-label": says, checked: on, indeterminate, "data-key": key,
    onclick: (e) => { shift = e.shiftKey; },
    onchange: (e) => {
      const one = here.length === 1 ? here[0] : null;
      for (const id of shift && one ? reach(one) : here) e.target.checked ? ids.add(id) : ids.delete(id);
      last = one; shift = false; whole = false;
      redraw();
    } });
  const clear = () => { ids.clear(); last = null; whole = false; };

  const current = () => rows().findIndex((r) => r.contains(document.activeElement));
  const step = (by) => {
    const all = rows(), at = current();
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]?.querySelector("a")?.focus();
  };
  keys.onPage("j", `next ${one}`, () => step(1));
  keys.onPage("k", `${one} before`, () => step(-1));
  keys.onPage("x", `choose the ${one}`, () => rows()[current()]?.querySelector("input")?.click());

  return {
    bar, clear,
    has: (id) => ids.has(id),
    // target is what to act on: the ids chosen, or by whole what a filter finds.
    target: (filter) => (whole ? { filter } : { ids: [...ids] }),
    whole: () => whole,
    // keep forgets what is not on the page.
    keep(here) { const now = new Set(here); for (const id of ids) if (!now.has(id)) ids.delete(id); },
    // head and cell are the boxes of a table, for all rows and for one.
    head(here) {
      const every = here.every((id) => ids.has(id));
      return h("th", { class: "pick", scope: "col" }, box("Choose all on this page", "pick-all", here, every, !every && here.some((id) => ids.has(id))));
    },
    cell: (id) => h("td", { class: "pick" }, box(`Choose ${id}`, `pick-${id}`, [id], ids.has(id))),
    // show draws the bar, which stays in sight, with what is offered. more says that
    // the filter finds more than the whole page that is chosen.
    show(more, offer) {
      if (!ids.size) { whole = false; fill(bar); return; }
      fill(bar, h("div", { class: "selection-in" },
        h("span", { class: "grow" }, h("b", null, whole ? "All that match the filter" : plural(ids.size, one, many)), whole ? "" : " chosen",
          more && h("button", { type: "button", class: "link", "data-key": "whole", onclick: () => { whole = !whole; redraw(); } }, whole ? "only this page" : "choose all that match the filter")),
        offer(), h("button", { type: "button", class: "button quiet", "data-key": "none", onclick: () => { clear(); redraw(); } }, "Clear")));
    },
  };
}
