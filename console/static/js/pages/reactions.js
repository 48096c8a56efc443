// The rules of outbox react and how they go, and what became of events at them.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, span, utc, visible } from "../format.js";
import * as keys from "../keys.js";
import { empty, facts, failed, finder, loading, mark, panel } from "../parts.js";
import { go, href, query } from "../router.js";
import { repeatMany } from "../repeat.js";
import { may } from "../session.js";
import { deliveryStates, ruleStates } from "../words.js";

const fields = ["rule", "plugin", "state", "event_id", "since", "until"];
const hours = { "1h": 1, "6h": 6, "24h": 24, "7d": 168 };

// asked is the filter as the API has it.
function asked(q) {
  const f = {};
  for (const k of fields) if (q[k]) f[k] = q[k];
  if (hours[f.since]) f.since = new Date(Date.now() - hours[f.since] * 3600_000).toISOString();
  return f;
}

export function reactions(ctx) {
  ctx.title("Reactions");
  const q = query();
  const trail = (q.trail ?? "").split(" ").filter(Boolean); // cursors of the pages before
  const picked = new Set();
  let page = null, rules = null, counted = "", drawn = "", whole = false;
  const top = h("div", { class: "stack" }, loading("the rules")), list = h("div", null, loading("deliveries")), selection = h("div", { class: "selection", role: "region", "aria-label": "What is chosen" });
  const change = (next) => go(href("/reactions", { ...Object.fromEntries(fields.map((k) => [k, q[k]])), ...next }).slice("/console".length));
  const form = filters(q, change);
  fill(ctx.el, h("div", { class: "stack" },
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Reactions"), finder("Open a delivery by its id", "delivery id", (id) => go(`/reactions/${id}`))),
    top, h("h2", null, "Deliveries"), form.el, list), selection);

  const readRules = async () => {
    try {
      told(await api.reactions(ctx.signal));
    } catch (err) {
      if (!ctx.signal.aborted && !rules) fill(top, failed(err, readRules));
    }
  };
  // told draws the rules, and reads the deliveries again if there is anything new of them.
  function told(r) {
    const news = r.rules.map((x) => x.instances.map((i) => [i.instance, i.delivered, i.failed, i.errors, i.repeats, i.waiting, i.stuck]).join()).join(";");
    rules = r.rules;
    // That a process is still there is no reason to draw under somebody's pointer.
    const shown = JSON.stringify(rules.map((x) => ({ ...x, instances: x.instances.map((i) => ({ ...i, at: i.silent ? i.at : "", oldest_waiting_seconds: Math.floor(i.oldest_waiting_seconds) })) })));
    if (shown !== drawn) {
      drawn = shown;
      form.know(rules);
      fill(top, ruleTable(rules, q), q.rule && rules.filter((x) => x.rule === q.rule).map(ruleView));
    }
    if (news !== counted && counted) later();
    counted = news;
  }
  let timer = 0;
  const later = () => { timer ||= setTimeout(() => { timer = 0; if (!ctx.signal.aborted) read(); }, 400); };
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));

  async function read() {
    try {
      page = await api.deliveries({ ...asked(q), limit: 50, cursor: q.cursor }, ctx.signal);
    } catch (err) {
      if (!ctx.signal.aborted && !page) fill(list, failed(err, read));
      return;
    }
    const here = new Set(page.deliveries.map((d) => d.id));
    for (const id of picked) if (!here.has(id)) picked.delete(id);
    draw();
  }

  function draw() {
    const all = page.deliveries, filtered = fields.some((k) => q[k]) || q.cursor;
    if (!all.length) {
      fill(list, filtered
        ? empty("No delivery matches.", "None is like this now, or it was forgotten: delivered ones are kept for a week, failed ones for 30 days, unless told otherwise.", h("a", { class: "button", href: href("/reactions"), "data-key": "all" }, "Show all deliveries"))
        : empty("There are no deliveries.", "When a rule of outbox react matches an event, what became of it is here."));
    } else {
      fill(list, deliveryTable(all, picked, () => { whole = false; draw(); }), h("div", { class: "row between pager" },
        h("span", { class: "muted" }, `${plural(all.length, "delivery", "deliveries")}, newest first${trail.length || q.cursor ? `, page ${trail.length + 2}` : ""}`),
        h("div", { class: "row" },
          q.cursor && h("button", { type: "button", class: "button", "data-key": "back", onclick: back }, "Newer"),
          page.next && h("button", { type: "button", class: "button", "data-key": "next", onclick: forward }, "Older"))));
    }
    choose();
  }

  // The bar for what is chosen; it stays in sight.
  function choose() {
    if (!picked.size) { whole = false; return fill(selection); }
    const done = page.deliveries.some((d) => picked.has(d.id) && d.state !== "pending");
    const more = picked.size === page.deliveries.length && (page.next || q.cursor) && q.state && q.state !== "pending";
    return fill(selection, h("div", { class: "selection-in" },
      h("span", { class: "grow" }, h("b", null, whole ? `All that match the filter` : plural(picked.size, "delivery", "deliveries")), whole ? "" : " chosen",
        more && h("button", { type: "button", class: "link", "data-key": "whole", onclick: () => { whole = !whole; choose(); } }, whole ? "only this page" : "choose all that match the filter")),
      !may("repeat") ? h("span", { class: "muted" }, "Your role may look, and change nothing.")
        : done || whole ? h("button", { type: "button", class: "button primary", "data-key": "act-repeat", onclick: run }, "Repeat")
          : h("span", { class: "muted" }, "These are tried again by themselves."),
      h("button", { type: "button", class: "button quiet", "data-key": "none", onclick: () => { picked.clear(); draw(); } }, "Clear")));
  }

  const run = () => ask(repeatMany(whole ? { filter: asked(q) } : { ids: [...picked] }, () => { picked.clear(); read(); }));
  const forward = () => change({ cursor: page.next, trail: q.cursor ? [...trail, q.cursor].join(" ") : "" });
  const back = () => change(trail.length ? { cursor: trail[trail.length - 1], trail: trail.slice(0, -1).join(" ") } : {});

  ctx.on(["reactions"], told);
  ctx.soon(["deliveries"], read);
  const rows = () => [...list.querySelectorAll("tbody tr")];
  const step = (by) => {
    const all = rows(), at = all.findIndex((r) => r.contains(document.activeElement));
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]?.querySelector("a")?.focus();
  };
  keys.onPage("/", "filter by rule", () => form.first.focus());
  keys.onPage("j", "next delivery", () => step(1));
  keys.onPage("k", "delivery before", () => step(-1));
  keys.onPage("x", "choose the delivery", () => rows().find((r) => r.contains(document.activeElement))?.querySelector("input")?.click());
  keys.onPage("n", "older deliveries", () => page?.next && forward());
  keys.onPage("p", "newer deliveries", () => q.cursor && back());
  if (may("repeat")) keys.onPage("r", "repeat what is chosen", () => selection.querySelector("[data-key=act-repeat]")?.click());
  readRules();
  read();
}

const sum = (all, name) => all.reduce((n, i) => n + (i[name] ?? 0), 0);
// here are the processes that run a rule, or if none does those that did.
const here = (r) => { const on = r.instances.filter((i) => i.state === "running" && !i.silent); return on.length ? on : r.instances; };

function ruleTable(rules, q) {
  if (!rules.length) return empty("No rule has been heard of.", "Rules stand as react.rules in the configuration of outbox react, which tells of them here while it runs.");
  return h("div", { class: "scroll", role: "region", "aria-label": "Rules", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Rules, by name"),
    h("thead", null, h("tr", null, ["Rule", "Leads to", "State", "Waiting", "Delivered", "Failed", "Failed attempts", "Last error"].map((t, i) => h("th", { scope: "col", class: i > 2 && i < 7 ? "num" : null }, t)))),
    h("tbody", null, rules.map((r) => {
      const on = here(r), oldest = Math.max(0, ...on.map((i) => i.oldest_waiting_seconds)), stuck = sum(on, "stuck");
      const last = on.filter((i) => i.last_error).sort((a, b) => new Date(b.last_error_at) - new Date(a.last_error_at))[0];
      return h("tr", { class: q.rule === r.rule ? "picked" : null },
        h("td", { "data-label": "Rule" }, h("a", { href: href("/reactions", { rule: r.rule }), "data-key": `rule-${r.rule}` }, visible(r.rule))),
        h("td", { "data-label": "Leads to" }, h("a", { href: href("/reactions", { plugin: r.plugin }), "data-key": `to-${r.rule}` }, visible(r.plugin))),
        h("td", { "data-label": "State", class: "nowrap" }, mark(ruleStates, r.state), stuck > 0 && h("span", { class: "danger-text" }, ` ${count(stuck)} stuck`)),
        h("td", { "data-label": "Waiting", class: "num" }, count(sum(on, "waiting")), oldest >= 1 && h("span", { class: oldest > 1800 ? "danger-text" : "muted" }, `, ${span(oldest * 1000)}`)),
        h("td", { "data-label": "Delivered", class: "num" }, count(sum(on, "delivered"))),
        h("td", { "data-label": "Failed", class: "num" }, sum(on, "failed") ? h("a", { class: "danger-text", href: href("/reactions", { rule: r.rule, state: "failed" }), "data-key": `failed-${r.rule}` }, count(sum(on, "failed"))) : "0"),
        h("td", { "data-label": "Failed attempts", class: "num" }, count(sum(on, "errors"))),
        h("td", { "data-label": "Last error" }, last ? [h("span", { class: "clip", title: visible(last.last_error) }, visible(last.last_error)), " ", h("span", { class: "muted" }, ago(last.last_error_at))] : h("span", { class: "muted" }, "–")));
    }))));
}

// ruleView is one rule: what it says, and the processes that run it.
function ruleView(r) {
  return panel(`Rule ${r.rule}`, { aside: h("span", { class: "small muted" }, "counts since each process began") },
    facts([
      ["Topics", r.topics.map(visible).join(", ")], ["Types", r.types?.length ? r.types.map(visible).join(", ") : "all"], ["When", r.when && h("code", null, visible(r.when))],
      ["Leads to", `${visible(r.plugin)}, a ${r.kind}`], ["Order", r.order === "aggregate" ? "by aggregate" : "none"],
      ["Attempts", `up to ${count(r.attempts)}, each ${span(r.timeout_seconds * 1000)} at most`], ["At once", `${count(r.concurrency)} in each process; ${count(r.queue)} may wait`],
    ]),
    h("h3", { class: "gap" }, plural(r.instances.length, "process", "processes")),
    h("ul", { class: "plain" }, r.instances.map((i) => h("li", { class: "break" }, mark(ruleStates, i.silent ? "silent" : i.state), " ", h("span", { class: "mono" }, visible(i.instance)), h("span", { class: "muted" },
      ` · ${plural(i.partitions, "partition")} · ${count(i.records)} read · ${count(i.under_way)} under way${i.undecided ? ` · ${count(i.undecided)} undecided` : ""}${i.store_errors ? ` · ${count(i.store_errors)} errors of the database` : ""}`, i.silent || i.state === "stopped" ? [" · heard of ", ago(i.at)] : "")))));
}

function deliveryTable(all, picked, onpick) {
  const every = all.every((d) => picked.has(d.id)), some = all.some((d) => picked.has(d.id));
  const pick = (d, on) => (on ? picked.add(d.id) : picked.delete(d.id));
  return h("div", { class: "scroll", role: "region", "aria-label": "Deliveries", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Deliveries, newest first"),
    h("thead", null, h("tr", null,
      h("th", { class: "pick", scope: "col" }, h("input", { type: "checkbox", "aria-label": "Choose all on this page", checked: every, indeterminate: some && !every, "data-key": "pick-all", onchange: (e) => { for (const d of all) pick(d, e.target.checked); onpick(); } })),
      ["Delivery", "Rule", "To", "State", "Tries", "Type", "Aggregate", "Began", "Error"].map((t) => h("th", { scope: "col", class: t === "Tries" ? "num" : null }, t)))),
    h("tbody", null, all.map((d) => h("tr", { "data-id": d.id, class: picked.has(d.id) ? "picked" : null },
      h("td", { class: "pick" }, h("input", { type: "checkbox", "aria-label": `Choose ${d.id}`, checked: picked.has(d.id), "data-key": `pick-${d.id}`, onchange: (e) => { pick(d, e.target.checked); onpick(); } })),
      h("td", { "data-label": "Delivery" }, h("a", { class: "mono", href: href(`/reactions/${d.id}`), title: d.id, "data-key": `row-${d.id}` }, short(d.id))),
      h("td", { "data-label": "Rule" }, h("span", { class: "clip" }, visible(d.rule))),
      h("td", { "data-label": "To" }, h("span", { class: "clip" }, d.plugin ? visible(d.plugin) : "–")),
      h("td", { "data-label": "State", class: "nowrap" }, mark(deliveryStates, d.state), d.next_attempt && [" ", h("span", { class: "small muted" }, ago(d.next_attempt))]),
      h("td", { "data-label": "Tries", class: "num" }, count(d.attempts)),
      h("td", { "data-label": "Type" }, h("span", { class: "clip" }, visible(d.event_type || "–"))),
      h("td", { "data-label": "Aggregate" }, h("span", { class: "mono", title: visible(d.aggregate_id) }, visible(short(d.aggregate_id) || "–"))),
      h("td", { "data-label": "Began", class: "nowrap", title: utc(d.created_at) }, ago(d.created_at)),
      h("td", { "data-label": "Error" }, d.error && d.state !== "delivered" ? h("span", { class: "clip", title: visible(d.error) }, visible(d.error)) : "–"))))));
}

// filters is the form; what is chosen acts at once, what is typed on Enter or on leaving.
function filters(q, change) {
  const set = (name) => (e) => { const v = e.target.value.trim(); if (v !== (q[name] ?? "")) change({ [name]: v }); };
  const text = (name, label, list) => h("label", null, label, h("input", { type: "text", name, value: q[name] ?? "", placeholder: "any", spellcheck: "false", autocomplete: "off", list, onchange: set(name), "data-key": `f-${name}` }));
  const first = text("rule", "Rule", "known-rules"), known = h("div", { hidden: true });
  const since = hours[q.since] || !q.since;
  const time = (name, label) => h("label", null, label, h("input", { type: "datetime-local", name, value: (q[name] ?? "").slice(0, 16), "data-key": `f-${name}`, onchange: (e) => change({ [name]: e.target.value ? `${e.target.value.slice(0, 16)}:00Z` : "" }) }));
  const el = h("form", { class: "panel filters", role: "search", "aria-label": "Filter deliveries", onsubmit: (e) => { e.preventDefault(); document.activeElement?.blur(); } },
    first, text("plugin", "Leads to", "known-plugins"),
    h("label", null, "State", h("select", { name: "state", value: q.state ?? "", onchange: set("state"), "data-key": "f-state" }, h("option", { value: "" }, "any"), Object.keys(deliveryStates).map((s) => h("option", { value: s }, s)))),
    text("event_id", "Event"),
    h("label", null, "Began", h("select", { name: "within", value: since ? q.since ?? "" : "from", "data-key": "f-within", onchange: (e) => change({ since: e.target.value === "from" ? `${new Date(Date.now() - 86400_000).toISOString().slice(0, 16)}:00Z` : e.target.value, until: e.target.value === "from" ? q.until : "" }) },
      h("option", { value: "" }, "ever"), h("option", { value: "1h" }, "in the last hour"), h("option", { value: "6h" }, "in 6 hours"), h("option", { value: "24h" }, "in a day"), h("option", { value: "7d" }, "in a week"), h("option", { value: "from" }, "between…"))),
    !since && [time("since", "From (UTC)"), time("until", "Until (UTC)")],
    fields.some((k) => q[k]) && h("a", { class: "button quiet clear", href: href("/reactions"), "data-key": "clear" }, "Clear filters"), known);
  const options = (id, values) => h("datalist", { id }, [...new Set(values)].map((v) => h("option", { value: v })));
  return { el, first: first.querySelector("input"), know: (rules) => fill(known, options("known-rules", rules.map((r) => r.rule)), options("known-plugins", rules.map((r) => r.plugin))) };
}
