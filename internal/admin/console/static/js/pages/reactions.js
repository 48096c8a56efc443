// The rules of outbox react, their state, and their deliveries.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, span, utc, visible } from "../format.js";
import * as keys from "../keys.js";
import { chooser, listing, since } from "../listing.js";
import { empty, facts, failed, finder, loading, mark, panel } from "../parts.js";
import { go, href } from "../router.js";
import { repeatMany } from "../repeat.js";
import { may } from "../session.js";
import { deliveryStates, ruleStates } from "../words.js";

const fields = ["rule", "plugin", "state", "event_id", "since", "until"];

// asked is the filter as the API has it.
function asked(q) {
  const f = {};
  for (const k of fields) if (q[k]) f[k] = q[k];
  f.since = since(f.since);
  return f;
}

export function reactions(ctx) {
  ctx.title("Reactions");
  const all = listing("/reactions", fields, "deliveries"), { q } = all;
  let page = null, rules = null, counted = "", drawn = "";
  const top = h("div", { class: "stack" }, loading("the rules")), list = h("div", null, loading("deliveries"));
  const form = filters(all), chosen = chooser(list, ["delivery", "deliveries"], draw);
  fill(ctx.el, h("div", { class: "stack" },
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Reactions"), finder("Open a delivery by its id", "delivery id", (id) => go(`/reactions/${id}`))),
    top, h("h2", null, "Deliveries"), form.el, list), chosen.bar);

  const readRules = async () => {
    try {
      told(await api.reactions(ctx.signal));
    } catch (err) {
      if (!ctx.signal.aborted && !rules) fill(top, failed(err, readRules));
    }
  };
  // told draws the rules, and reads the deliveries again if their counts changed.
  function told(r) {
    const news = r.rules.map((x) => x.instances.map((i) => [i.instance, i.delivered, i.failed, i.errors, i.repeats, i.waiting, i.stuck]).join()).join(";");
    rules = r.rules;
    // A heartbeat alone does not redraw the table under the pointer.
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
    chosen.keep(page.deliveries.map((d) => d.id));
    draw();
  }

  function draw() {
    const deliveries = page.deliveries;
    if (!deliveries.length) {
      fill(list, all.filtered || q.cursor
        ? empty("No delivery matches.", "Retention may have removed it: by default delivered ones are kept for a week, failed ones for 30 days.", h("a", { class: "button", href: href("/reactions"), "data-key": "all" }, "Show all deliveries"))
        : empty("There are no deliveries.", "Events that match a rule of outbox react are listed here."));
    } else {
      fill(list, deliveryTable(deliveries, chosen), all.pager(page, `${plural(deliveries.length, "delivery", "deliveries")}, newest first`));
    }
    const here = deliveries.filter((d) => chosen.has(d.id));
    chosen.show(here.length === deliveries.length && (page.next || q.cursor) && q.state && q.state !== "pending", () => {
      if (!may("repeat")) return h("span", { class: "muted" }, "Your role is read-only.");
      return here.some((d) => d.state !== "pending") || chosen.whole() ? h("button", { type: "button", class: "button primary", "data-key": "act-repeat", onclick: run }, "Repeat")
        : h("span", { class: "muted" }, "These are retried automatically.");
    });
  }

  const run = () => ask(repeatMany(chosen.target(asked(q)), () => { chosen.clear(); read(); }));
  ctx.on(["reactions"], told);
  ctx.soon(["deliveries"], read);
  if (may("repeat")) keys.onPage("r", "repeat what is chosen", () => chosen.bar.querySelector("[data-key=act-repeat]")?.click());
  readRules();
  read();
}

const sum = (all, name) => all.reduce((n, i) => n + (i[name] ?? 0), 0);
// here are the processes that run a rule, or if none does those that did.
const here = (r) => { const on = r.instances.filter((i) => i.state === "running" && !i.silent); return on.length ? on : r.instances; };

function ruleTable(rules, q) {
  if (!rules.length) return empty("No rule has been reported.", "Rules are declared in react.rules of the configuration of outbox react, which reports them while it runs.");
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

// ruleView is one rule: its configuration and the processes that run it.
function ruleView(r) {
  return panel(`Rule ${r.rule}`, { aside: h("span", { class: "small muted" }, "counts since the start of each process") },
    facts([
      ["Topics", r.topics.map(visible).join(", ")], ["Types", r.types?.length ? r.types.map(visible).join(", ") : "all"], ["When", r.when && h("code", null, visible(r.when))],
      ["Leads to", `${visible(r.plugin)}, a ${r.kind}`], ["Order", r.order === "aggregate" ? "by aggregate" : "none"],
      ["Attempts", `up to ${count(r.attempts)}, each ${span(r.timeout_seconds * 1000)} at most`], ["Concurrency", `${count(r.concurrency)} per process, a queue of ${count(r.queue)}`],
    ]),
    h("h3", { class: "gap" }, plural(r.instances.length, "process", "processes")),
    h("ul", { class: "plain" }, r.instances.map((i) => h("li", { class: "break" }, mark(ruleStates, i.silent ? "silent" : i.state), " ", h("span", { class: "mono" }, visible(i.instance)), h("span", { class: "muted" },
      ` · ${plural(i.partitions, "partition")} · ${count(i.records)} read · ${count(i.under_way)} in progress${i.undecided ? ` · ${count(i.undecided)} undecided` : ""}${i.store_errors ? ` · ${count(i.store_errors)} database errors` : ""}`, i.silent || i.state === "stopped" ? [" · heartbeat ", ago(i.at)] : "")))));
}

function deliveryTable(deliveries, chosen) {
  return h("div", { class: "scroll", role: "region", "aria-label": "Deliveries", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Deliveries, newest first"),
    h("thead", null, h("tr", null, chosen.head(deliveries.map((d) => d.id)),
      ["Delivery", "Rule", "To", "State", "Attempts", "Type", "Aggregate", "Started", "Error"].map((t) => h("th", { scope: "col", class: t === "Attempts" ? "num" : null }, t)))),
    h("tbody", null, deliveries.map((d) => h("tr", { "data-id": d.id, class: chosen.has(d.id) ? "picked" : null }, chosen.cell(d.id),
      h("td", { "data-label": "Delivery" }, h("a", { class: "mono", href: href(`/reactions/${d.id}`), title: d.id, "data-key": `row-${d.id}` }, short(d.id))),
      h("td", { "data-label": "Rule" }, h("span", { class: "clip" }, visible(d.rule))),
      h("td", { "data-label": "To" }, h("span", { class: "clip" }, d.plugin ? visible(d.plugin) : "–")),
      h("td", { "data-label": "State", class: "nowrap" }, mark(deliveryStates, d.state), d.next_attempt && [" ", h("span", { class: "small muted" }, ago(d.next_attempt))]),
      h("td", { "data-label": "Attempts", class: "num" }, count(d.attempts)),
      h("td", { "data-label": "Type" }, h("span", { class: "clip" }, visible(d.event_type || "–"))),
      h("td", { "data-label": "Aggregate" }, h("span", { class: "mono", title: visible(d.aggregate_id) }, visible(short(d.aggregate_id) || "–"))),
      h("td", { "data-label": "Started", class: "nowrap", title: utc(d.created_at) }, ago(d.created_at)),
      h("td", { "data-label": "Error" }, d.error && d.state !== "delivered" ? h("span", { class: "clip", title: visible(d.error) }, visible(d.error)) : "–"))))));
}

function filters(all) {
  const known = h("div", { hidden: true });
  const el = all.form("Filter deliveries", "rule",
    all.text("rule", "Rule", { list: "known-rules" }), all.text("plugin", "Leads to", { list: "known-plugins" }),
    all.choice("state", "State", Object.keys(deliveryStates).map((s) => h("option", { value: s }, s))), all.text("event_id", "Event"),
    all.period("Started", "since", "until", [["", "any time"], ["1h", "in the last hour"], ["6h", "in 6 hours"], ["24h", "in a day"], ["7d", "in a week"]]), known);
  const options = (id, values) => h("datalist", { id }, [...new Set(values)].map((v) => h("option", { value: v })));
  return { el, know: (rules) => fill(known, options("known-rules", rules.map((r) => r.rule)), options("known-plugins", rules.map((r) => r.plugin))) };
}
