// Messages that wait for their time.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, plural, short, utc, visible } from "../format.js";
import * as keys from "../keys.js";
import { empty, failed, finder, loading } from "../parts.js";
import { go, href, query } from "../router.js";

const fields = ["topic", "key", "from", "until"];
const hours = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 };
const looks = 5; // pages that may come back empty before somebody has to ask for more

export function scheduled(ctx) {
  ctx.title("Scheduled");
  const q = query();
  const trail = (q.trail ?? "").split(" ").filter(Boolean); // cursors of the pages before
  const list = h("div", null, loading("what waits"));
  const change = (next) => go(href("/scheduled", { ...Object.fromEntries(fields.map((k) => [k, q[k]])), ...next }).slice("/console".length));
  const form = filters(q, change);
  fill(ctx.el, h("div", { class: "stack" },
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Scheduled messages"), finder("Open a message by its id", "message id", (id) => go(`/scheduled/${id}`))), form.el, list));
  let page = null;

  async function read() {
    try {
      let cursor = q.cursor, now;
      for (let n = 0; n < looks; n++) {
        now = await api.messages({ state: "scheduled", topic: q.topic, key: q.key, from: q.from, until: hours[q.until] ? new Date(Date.now() + hours[q.until] * 3600_000).toISOString() : q.until, limit: 50, cursor }, ctx.signal);
        if (now.messages.length || !now.next) break;
        cursor = now.next;
      }
      if (JSON.stringify(now) === JSON.stringify(page)) return;
      page = now;
    } catch (err) {
      if (!ctx.signal.aborted && !page) fill(list, failed(err, read));
      return;
    }
    draw();
  }

  function draw() {
    const all = page.messages, filtered = fields.some((k) => q[k]) || q.cursor;
    if (!all.length && !page.next) {
      return fill(list, filtered
        ? empty("No message that waits is like this.", "It may have been delivered or taken back, or the filter is too narrow.", h("a", { class: "button", href: href("/scheduled"), "data-key": "all" }, "Show all that wait"))
        : empty("No message waits for its time.", "What is handed in with delay or deliver_at is here until it is due."));
    }
    return fill(list, all.length ? table(all) : h("p", { class: "muted" }, "None so far; more are to be looked through."), h("div", { class: "row between pager" },
      h("span", { class: "muted" }, `${plural(all.length, "message")}, the next to be delivered first${q.cursor ? `, page ${trail.length + 2}` : ""}`),
      h("div", { class: "row" },
        q.cursor && h("button", { type: "button", class: "button", "data-key": "back", onclick: back }, "Earlier"),
        page.next && h("button", { type: "button", class: "button", "data-key": "next", onclick: forward }, "Later"))));
  }

  const forward = () => change({ cursor: page.next, trail: q.cursor ? [...trail, q.cursor].join(" ") : "" });
  const back = () => change(trail.length ? { cursor: trail[trail.length - 1], trail: trail.slice(0, -1).join(" ") } : {});
  keys.onPage("/", "filter by topic", () => form.first.focus());
  keys.onPage("n", "later messages", () => page?.next && forward());
  keys.onPage("p", "earlier messages", () => q.cursor && back());
  ctx.every(5000, read);
  read();
}

const table = (all) => h("div", { class: "scroll", role: "region", "aria-label": "Messages that wait", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Messages that wait, the next to be delivered first"),
  h("thead", null, h("tr", null, ["Message", "Topic", "Key", "Due", "At (UTC)", "Handed in"].map((t) => h("th", { scope: "col" }, t)))),
  h("tbody", null, all.map((m) => h("tr", { "data-id": m.id },
    h("td", { "data-label": "Message" }, h("a", { class: "mono", href: href(`/scheduled/${m.id}`), title: m.id, "data-key": `row-${m.id}` }, short(m.id))),
    h("td", { "data-label": "Topic" }, h("span", { class: "clip wide", title: m.topic }, visible(m.topic))),
    h("td", { "data-label": "Key" }, h("span", { class: "clip" }, m.key ? visible(m.key) : "–")),
    h("td", { "data-label": "Due", class: "nowrap" }, Date.parse(m.deliver_at) < Date.now() ? h("span", { class: "warn-text" }, "overdue, ", ago(m.deliver_at)) : ago(m.deliver_at)),
    h("td", { "data-label": "At (UTC)", class: "nowrap" }, utc(m.deliver_at).replace(/\.\d+Z$/, "Z")),
    h("td", { "data-label": "Handed in", class: "nowrap" }, ago(m.created_at)))))));

function filters(q, change) {
  const set = (name) => (e) => { const v = e.target.value.trim(); if (v !== (q[name] ?? "")) change({ [name]: v }); };
  const text = (name, label, placeholder) => h("label", null, label, h("input", { type: "text", name, value: q[name] ?? "", placeholder, spellcheck: "false", autocomplete: "off", onchange: set(name), "data-key": `f-${name}` }));
  const topic = text("topic", "Topic", "any");
  const soon = !q.from && (!q.until || hours[q.until]);
  const time = (name, label) => h("label", null, label, h("input", { type: "datetime-local", name, value: hours[q[name]] ? "" : (q[name] ?? "").slice(0, 16), "data-key": `f-${name}`, onchange: (e) => change({ [name]: e.target.value ? `${e.target.value.slice(0, 16)}:00Z` : "" }) }));
  const el = h("form", { class: "panel filters", role: "search", "aria-label": "Filter messages", onsubmit: (e) => { e.preventDefault(); document.activeElement?.blur(); } },
    topic, text("key", "Key", "any"),
    h("label", null, "Due", h("select", { name: "within", value: soon ? q.until ?? "" : "between", "data-key": "f-within", onchange: (e) => change(e.target.value === "between" ? { from: `${new Date().toISOString().slice(0, 16)}:00Z`, until: "" } : { from: "", until: e.target.value }) },
      h("option", { value: "" }, "at any time"), h("option", { value: "1h" }, "within an hour"), h("option", { value: "24h" }, "within a day"), h("option", { value: "7d" }, "within a week"), h("option", { value: "30d" }, "within 30 days"), h("option", { value: "between" }, "between…"))),
    !soon && [time("from", "From (UTC)"), time("until", "Until (UTC)")],
    fields.some((k) => q[k]) && h("a", { class: "button quiet clear", href: href("/scheduled"), "data-key": "clear" }, "Clear"));
  return { el, first: topic.querySelector("input") };
}
