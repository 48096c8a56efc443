// The state of the system, the most urgent problem first.
import { api } from "../api.js";
import { chart } from "../chart.js";
import { fill, h, icon } from "../dom.js";
import { ago, count, known, oldest, plural, short, span, stamp, timed, unknown, visible } from "../format.js";
import { live } from "../live.js";
import { badge, empty, facts, loading, mark, meter, panel, sentence, tabs, unread } from "../parts.js";
import { href } from "../router.js";
import { serverTime } from "../time.js";
import { classMeans, eventStates, open, statusMeans, statuses, subscriptionStates } from "../words.js";

const kept = 15 * 60_000, every = 2000, over = 20_000;
// seen is the data of the stream since this tab was opened, and before that the samples of the server: the
// charts. It outlives the page, so that going to a dead letter and back does not empty them.
const seen = [], flow = []; // of dead letters, and of the relays
let latest = null;

// The period of the charts: what this tab has seen, or the recorded history.
const lengths = { day: 86_400_000, week: 7 * 86_400_000 }, periods = [["live", "Live"], ["day", "24 hours"], ["week", "7 days"]];
let period = "live", past = null;

// The stream sends the status when something changes; silence while it is live means that
// nothing did. While it is lost there are no points. A heartbeat of a relay has its rate and
// its latency since the one before.
live.addEventListener("status", ({ detail }) => {
  latest = detail.dead_letters;
  sample();
  const on = detail.relays.flatMap((r) => r.shards).filter((r) => !off(r));
  const slowest = (q) => Math.max(0, ...on.map((r) => r.latency?.[q] ?? 0));
  add(flow, { at: serverTime(), published: detail.published_per_second, p50: slowest("p50_ms") || undefined, p99: slowest("p99_ms") || undefined });
});
setInterval(() => { if (live.state === "live" && !live.outdated && latest) sample(); }, every);

// seed puts the samples of the server before what this tab has seen, so that the first visit shows what was
// published before it.
let seeded = false;
async function seed() {
  if (seeded) return;
  seeded = true;
  try {
    const { points } = await api.recentHistory(), first = (list) => list[0]?.at ?? serverTime();
    const old = points.map((p) => ({ at: Date.parse(p.at), open: p.open, total: p.total, published: p.published, p50: p.p50_ms, p99: p.p99_ms }));
    seen.unshift(...old.filter((p) => p.at < first(seen)));
    flow.unshift(...old.filter((p) => p.at < first(flow)));
  } catch { seeded = false; /* the charts begin now */ }
}

function sample() { add(seen, { at: serverTime(), open: latest.open, total: latest.total }); }

// add adds a point to a chart, which replaces the last one as long as the one before is near: many shards beat in
// a second.
function add(points, point) {
  if (points.length > 1 && point.at - points.at(-2).at < every) points.pop();
  points.push(point);
  while (points[0].at < point.at - kept) points.shift();
}

// rates are the dead letters per minute between each state and an earlier one, that of
// before(i) if there is one. What retention removes makes the total smaller, which is no rate.
function rates(states, before) {
  const failed = [], settled = [];
  states.forEach((now, i) => {
    const then = before(i), minutes = then ? (now.at - then.at) / 60_000 : 0;
    if (minutes < 0.05) return;
    const all = now.total - then.total, gone = all - (now.open - then.open);
    failed.push([now.at, Math.max(0, all) / minutes]);
    settled.push([now.at, Math.max(0, gone) / minutes]);
  });
  return { failed, settled };
}

// pointsOf are the points of a chart: the states that have the figure.
const pointsOf = (states, figure) => states.filter((s) => s[figure] !== undefined).map((s) => [s.at, s[figure]]);

export function overview(ctx) {
  ctx.title("Overview");
  const verdict = h("div", { class: "verdict" }), body = h("div", { class: "overview" });
  fill(ctx.el, h("div", { class: "stack" }, h("h1", { tabindex: "-1", class: "hidden-text" }, "Overview"), verdict, body));
  fill(body, loading("the state of the system"));
  let status = null, newest = null;
  const drawn = h("div", { class: "charts" });

  const read = ctx.reader(async () => {
    [status] = await Promise.all([api.status(ctx.signal), seed()]);
    if (!latest) { latest = status.dead_letters; sample(); }
    draw();
  }, body);
  const draw = () => {
    if (ctx.signal.aborted || !status) return;
    fill(verdict, say(status));
    if (period === "live" && seen.length < 3) fill(drawn, charts());
    fill(body,
      h("div", { class: "stack" }, events(status), backlog(status.dead_letters), panel("Charts", { aside: h("div", { class: "row" }, period === "live" && h("span", { class: "small muted" }, "15 min at most"), tabs("Period of the charts", periods, period, choose)) }, drawn), classesOf(status.dead_letters), newestOf(newest)),
      h("div", { class: "stack" }, relayPanels(status.relays), queues(status), verification(status)));
  };
  ctx.on(["status"], (s) => { status = s; draw(); });
  const readNewest = async () => {
    newest = await api.events({ limit: 8 }, ctx.signal).catch(() => null);
    draw();
  };
  ctx.every(5000, readNewest);
  ctx.on(["again"], readNewest);
  readNewest();
  const show = async () => {
    await readPast(ctx.signal);
    if (!ctx.signal.aborted) fill(drawn, charts());
  };
  const choose = (chosen) => {
    period = chosen;
    past = null;
    draw();
    fill(drawn, charts());
    if (period !== "live") show();
  };
  const again = setInterval(() => { if (period === "live") fill(drawn, charts()); }, every);
  const later = setInterval(() => { if (period !== "live") show(); }, 60_000);
  ctx.signal.addEventListener("abort", () => { clearInterval(again); clearInterval(later); });
  if (period !== "live") show();
  fill(drawn, charts());
  read();
}

// off reports that the last heartbeat of a shard is not that of a process that runs.
const off = (r) => r.silent || r.state === "stopped";

// processOf is the host and process of one that shares, as its shards have it.
const processOf = (m) => m.instance.replace(/\/shards$/, "");

const broken = (r) => !off(r) && r.breaker?.state && r.breaker.state !== "closed";

// troubles are the problems of the instances that could own a shard.
const troubles = (members) => [...new Set(members.flatMap((m) => m.problems ?? []))];

const tones = { critical: "bad", warning: "warn", info: "info", ok: "ok" };

// say is the verdict of the server: the worst thing first, in words.
function say({ level, title, details, unknown, dead_letters: s }) {
  const more = [...details, ...unknown.map((u) => `Not read: ${u}.`)];
  return h("div", { class: `say ${tones[level]}` }, icon(level === "ok" ? "check" : "warn"), h("div", { class: "grow" }, h("p", { class: "say-title break" }, visible(title)), h("p", { class: "break" }, visible(more.join(" ")))),
    known(s.oldest) && s.open ? h("p", { class: "oldest" }, h("span", { class: "muted small" }, "Oldest"), h("b", null, oldest(s.oldest))) : null);
}

// events are those that wait, and what is published.
const events = (status) => {
  const { waiting: w, published_per_second: rate, relays } = status, n = unread(status, "waiting") ? null : w.events + w.spilled;
  return panel("Events", {},
  h("div", { class: "figures" },
    h("p", { class: "figure", title: "Events that are stored and not published, with the dead letters that the relay publishes when its breaker closes" }, n === null ? [unknown(), " how many wait"] : [h("b", null, `${w.at_least ? "≥ " : ""}${count(n)}`), n === 1 ? " waits" : " wait"]),
    h("p", { class: "figure" }, h("b", null, rate.toFixed(rate < 10 ? 1 : 0)), " published/s"),
    published(relays.flatMap((r) => r.shards).filter((s) => known(s.started_at)))));
};

// published is what the owners of the shards have published since they began: a new owner counts from 0.
const published = (shards) => shards.length > 0 && h("p", { class: "figure" }, h("b", null, count(shards.reduce((n, s) => n + (s.published_total ?? 0), 0))), ` published in ${span(serverTime() - Date.parse(shards.map((s) => s.started_at).sort()[0]))}`);

function backlog(s) {
  const n = (st) => s.by_status?.[st] ?? 0;
  return panel("Dead letters", { aside: h("a", { href: href("/dead-letters", { status: "open" }), "data-key": "all-open" }, "All open") },
    h("div", { class: "figures" }, h("p", { class: "figure" }, h("b", null, count(s.open)), " open")),
    meter(open.map((st) => ({ name: st, value: n(st) }))),
    h("ul", { class: "statuses" }, statuses.map((st) => h("li", { title: statusMeans[st] },
      h("a", { href: href("/dead-letters", { status: st }), "data-key": `st-${st}`, class: n(st) ? null : "zero" }, badge(st), " ", h("b", null, count(n(st))))))));
}

function classesOf({ causes: all }) {
  const sum = (c) => c.count + c.blocks, most = Math.max(1, ...all.map(sum));
  return panel("Causes", { aside: h("a", { href: href("/groups"), "data-key": "groups" }, "Groups") },
    all.length ? h("ul", { class: "bars" }, all.slice(0, 8).map((c) => h("li", null,
      h("a", { href: href("/dead-letters", { status: "open", error_class: c.error_class }), "data-key": `c-${c.error_class}` }, h("span", { class: "bars-name" }, c.error_class || "(none)", c.blocks > 0 && h("span", { class: "muted" }, ` · blocks ${count(c.blocks)}`)), h("b", null, count(c.count)), h("span", { class: "bars-bar", "aria-hidden": "true", css: { "--share": `${(sum(c) / most) * 100}%` } })),
      h("p", { class: "small muted" }, classMeans(c.error_class)[0]))))
      : h("p", { class: "muted" }, "No dead letter is open. Error classes are listed here, with the events that wait behind them, most frequent first."));
}

// newestOf are the newest events, whatever their state.
const newestOf = (page) => page?.events.length > 0 && panel("Newest events", { aside: h("a", { href: href("/events"), "data-key": "events" }, "All recent") }, h("ul", { class: "plain newest" }, page.events.map((e) => h("li", { class: "break" },
  h("a", { class: "mono", href: href(`/aggregates/${encodeURIComponent(e.aggregate_id)}`), title: e.aggregate_id, "data-key": `newest-${e.event_id}` }, short(e.aggregate_id)), " ", visible(e.event_type), " ", mark(eventStates, e.state), " ", h("span", { class: "muted" }, ago(e.written_at))))),
  page.gaps.map((g) => h("p", { class: "small muted break gap" }, visible(g))));

// charts are those of the chosen period.
function charts() {
  const d = period === "live" ? recent() : past;
  if (!d) return [loading("the history")];
  if (d.err) return [h("p", { class: "callout bad" }, d.err.message)];
  if (!d.open.length) return [h("p", { class: "muted" }, "There is no history yet: a point is recorded every five minutes.")];
  const at = (list) => (list.length ? list[list.length - 1][1] : 0), { from, to, gap } = d;
  return [
    h("div", null, h("h3", null, "Open dead letters"), chart({ from, to, gap, label: `Open dead letters over the last ${d.lasting}: now ${count(at(d.open))}`, series: [{ name: "Open", colour: "open", area: true, points: d.open }] })),
    h("div", null, h("h3", null, "Dead letters per minute"), chart({ from, to, gap, label: `Dead letters per minute: ${at(d.failed).toFixed(1)} new, ${at(d.settled).toFixed(1)} settled`,
      series: [{ name: "New", colour: "in", points: d.failed }, { name: "Settled", colour: "out", points: d.settled }] })),
    d.published.length > 0 && h("div", null, h("h3", null, "Events published per second", d.events > 0 && h("span", { class: "muted" }, ` · ${plural(d.events, "event")} in ${d.lasting}`)), chart({ from, to, gap, label: `Events published per second, by all relays: now ${at(d.published).toFixed(1)}`, series: [{ name: "Published", colour: "out", area: true, points: d.published }] })),
    d.published.length > 0 && h("div", null, h("h3", null, "Latency from commit to broker"), d.p99.length ? chart({ from, to, gap, unit: " ms", label: `Latency from commit to broker in milliseconds: median ${at(d.p50).toFixed(1)}, 99th percentile ${at(d.p99).toFixed(1)}`,
      series: [{ name: "Median", colour: "out", points: d.p50 }, { name: "p99", colour: "in", points: d.p99 }] }) : h("p", { class: "muted" }, `No latency was measured ${d.since}.`)),
  ];
}

// recent is what this tab has seen. Its rates are over the last 20 s before each state.
function recent() {
  const to = serverTime(), from = seen.length ? Math.min(seen[0].at, to - 60_000) : to - 60_000;
  let j = 0;
  const before = (i) => { while (seen[j].at < seen[i].at - over) j++; return seen[j]; };
  return {
    from, to, lasting: seen.length ? span(Math.max(1000, to - seen[0].at)) : "second", since: `in the last ${seen.length ? span(Math.max(1000, to - seen[0].at)) : "second"}`,
    open: seen.length ? pointsOf(seen, "open") : [[to, 0]], ...rates(seen, before),
    published: pointsOf(flow, "published"), p50: pointsOf(flow, "p50"), p99: pointsOf(flow, "p99"),
  };
}

// readPast reads the history of the chosen period.
async function readPast(signal) {
  const chosen = period, to = serverTime(), from = to - lengths[chosen], lasting = span(to - from);
  let d;
  try {
    const { step_seconds: step, points } = await api.history(new Date(from).toISOString(), signal);
    const states = points.map((p) => ({ ...p, at: Date.parse(p.at) })), gap = 2.5 * step * 1000;
    const before = (i) => (i && states[i].at - states[i - 1].at <= gap ? states[i - 1] : null);
    d = {
      from, to, gap, lasting, since: `in the last ${lasting}`, open: pointsOf(states, "open"), ...rates(states, before),
      events: Math.round(step * states.reduce((n, s) => n + s.published, 0)), published: pointsOf(states, "published"), p50: pointsOf(states, "p50_ms"), p99: pointsOf(states, "p99_ms"),
    };
  } catch (err) {
    d = { err };
  }
  if (chosen === period && !signal.aborted) past = d;
}

function relayPanels(relays) {
  if (!relays.length) return panel("Relays", {}, empty("No relay has sent a heartbeat.", "A running relay writes heartbeats. Without a relay nothing is published or replayed."));
  // A relay of several tables is named with them.
  const title = (r, name) => `Relay ${name}${relays.some((o) => o !== r && o.name === r.name) ? `, ${r.table}` : ""}`;
  return relays.map((r) => (r.instances.length || r.shards.some((s) => s.shard) ? sharedPanel(r, title(r, r.name)) : ownPanels(r, (s) => title(r, s.name))));
}

// sharedPanel is a relay that several instances share: the owner of each shard.
function sharedPanel({ table, instances, shards }, title) {
  const idle = instances.filter((m) => !m.sharing.owned.length);
  // Shards need owners unless the whole relay was stopped.
  const none = !instances.length && shards.every((r) => r.state === "stopped") ? ["archived", "stopped"] : ["failed", "none"];
  const standby = ["Standby", idle.length > 0 && idle.map((m) => `${processOf(m)}${m.sharing.joined ? "" : " (not in the group)"}`).join(", ")];
  if (shards.length === 1 && shards[0].shard?.count === 1) {
    const first = shards[0];
    return panel(title, { aside: off(first) ? h("span", { class: `badge ${first.silent || instances.length ? "b-failed" : "b-archived"}` }, first.silent ? "silent" : instances.length ? "not owned" : "stopped") : h("span", { class: "small muted" }, plural(instances.length, "instance")) }, [relayView(first, instances), idle.length > 0 && !off(first) && facts([standby])]);
  }
  return panel(title, { aside: h("span", { class: "small muted" }, `${plural(shards.length, "shard")}, ${plural(instances.length, "instance")}`) }, [
    shards.length > 0 && h("table", { class: "pairs shards" },
      h("thead", null, h("tr", null, ["Shard", "Owner", "Events/s", "Lag"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", null, shards.map((r) => h("tr", null,
        h("th", { scope: "row" }, String(r.shard?.index ?? 0)),
        h("td", { class: "break" }, off(r) ? h("span", { class: `badge b-${none[0]}` }, none[1]) : r.instance,
          broken(r) && h("p", null, h("span", { class: `badge ${r.breaker.state === "open" ? "b-failed" : "b-pending"}` }, `breaker ${r.breaker.state.replace("_", "-")}`))),
        off(r) ? h("td", { colspan: "2", class: "muted" }, r.state === "stopped" ? "released " : "no heartbeat since ", ago(r.at)) : [
          h("td", null, (r.rates?.published ?? 0).toFixed(1)), h("td", null, seconds(r.behind_seconds))])))),
    shards.some((r) => !off(r) && r.problems?.length) && h("ul", { class: "problems" }, shards.filter((r) => !off(r)).flatMap((r) => (r.problems ?? []).map((p) => h("li", { class: "break" }, `Shard ${r.shard?.index ?? 0}: `, timed(p))))),
    !shards.length && h("ul", { class: "problems" }, troubles(instances).map((p) => h("li", { class: "break" }, timed(p)))),
    facts([
      ["Table", table],
      ["Instances", instances.length > 0 && instances.map((m) => `${processOf(m)}${m.sharing.joined ? "" : " (not in the group)"}`).join(", ")],
      standby,
    ]),
  ]);
}

function ownPanels({ shards, ended_processes: ended, ended_at: at }, title) {
  return shards.map((r) => panel(title(r), { aside: r.silent ? h("span", { class: "badge b-failed" }, "silent") : h("span", { class: "small muted" }, r.state === "running" ? "" : `${r.state}, `, "heartbeat ", ago(r.at)) },
    relayView(r, []), ended > 0 && h("p", { class: "small muted gap" }, `${plural(ended, "earlier process", "earlier processes")} ended without a final heartbeat, the last `, ago(at), ".")));
}

// queues are the subscriptions with messages that wait, and those with a problem.
function queues(status) {
  const all = status.subscriptions, why = unread(status, "subscriptions");
  if (!all.length && !why) return null;
  const value = (s, v) => (why || s.error ? unknown() : v);
  return panel("Subscriptions", { aside: h("a", { href: href("/subscriptions"), "data-key": "queues" }, "All") },
    h("table", { class: "pairs queues cards" },
      h("thead", null, h("tr", null, ["Subscription", "Lag", "Oldest", "Dead letters"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", null, all.map((s) => [h("tr", null,
        h("td", { "data-label": "Subscription", class: "break" }, h("a", { href: href(`/subscriptions/${s.name}`), "data-key": `q-${s.name}` }, visible(s.name)), s.paused && [" ", mark(subscriptionStates, "paused")]),
        h("td", { "data-label": "Lag" }, value(s, count(s.lag))), h("td", { "data-label": "Oldest", class: "nowrap" }, value(s, oldest(s.oldest))),
        h("td", { "data-label": "Dead letters" }, why || s.error ? unknown() : s.dead_letters ? h("a", { class: "danger-text", href: href("/dead-letters", { table: `subscription.${s.name}` }), "data-key": `qd-${s.name}` }, count(s.dead_letters)) : count(0))),
      !why && ills(s).length > 0 && h("tr", null, h("td", { colspan: "4", class: "small danger-text break" }, ills(s).join("; ")))]))),
    why && h("p", { class: "small danger-text break" }, `Their state cannot be read: ${visible(why.slice("subscriptions: ".length))}.`));
}

// ills are the problems of a subscription.
const ills = (s) => (s.error ? [visible(s.error)] : !s.instances ? ["no process runs it"] : [s.suspended && `it delivers nothing: ${visible(s.suspended)}`, s.unowned_partitions > 0 && `${plural(s.unowned_partitions, "partition")} without an owner`].filter(Boolean));

// verification is the last proof that every event is in its topic.
const verification = (status) => status.verification.length > 0 && panel("Verification", {}, status.verification.map((v) => facts([
  ["Table", v.table],
  ["Last pass", v.last_pass ? h("span", null, "ended ", ago(v.last_pass)) : `the first one has verified ${count(v.ranges_done)} of ${plural(v.ranges, "range")}`],
  ["Verified", v.verified && `events written until ${stamp(v.verified)}`],
  ["Missing", unread(status, "verification") ? unknown() : v.missing ? h("span", { class: "danger-text" }, plural(v.missing, "event")) : "no event"],
])));

const seconds = (v) => (typeof v === "number" ? (v > 0 && v < 10 ? `${v.toFixed(1)} s` : span(v * 1000)) : v);

// unfolded are the relays whose streams were unfolded; each heartbeat draws them again.
const unfolded = new Set();

function relayView(r, members) {
  const b = off(r) ? {} : r.breaker ?? {}, lag = r.lag ?? [], groups = r.groups ?? [], key = `${r.name} ${r.table}`;
  const stale = off(r);
  const said = stale && members.length ? troubles(members) : (r.problems ?? []).slice(r.silent ? 1 : 0); // the first one of a silent relay is the server's
  return [
    stale && h("p", { class: `callout ${r.silent ? "bad" : ""}` }, r.silent ? timed(sentence(r.problems[0])) : members.length ? "No instance owns its shard." : "It was stopped.", " The data below is from ", stamp(r.at), "."),
    said.length > 0 && h("ul", { class: "problems" }, said.map((p) => h("li", { class: "break" }, timed(p)))),
    facts([
      ["Breaker", b.state && h("span", null, h("span", { class: `badge ${b.state === "closed" ? "b-resolved" : b.state === "open" ? "b-failed" : "b-pending"}` }, b.state.replace("_", "-")), known(b.since) ? [" since ", ago(b.since)] : null)],
      ["Cause", !said.some((p) => p.includes(b.cause)) && b.cause],
      ["Publishes", !stale && r.rates && `${r.rates.published.toFixed(r.rates.published < 10 ? 1 : 0)} events/s${r.rates.failures > 0 ? `, ${r.rates.failures.toFixed(1)} failures/s` : ""}`],
      ["Latency", !stale && r.latency && `median ${span(r.latency.p50_ms)}, p99 ${span(r.latency.p99_ms)}, from commit to broker`],
      ["Sweep lag", !stale && r.behind_seconds !== undefined && `${seconds(r.behind_seconds)}, its confidence window included`],
      ["In flight", !stale && r.in_flight !== undefined && plural(r.in_flight, "event")],
      ["Spilled", r.spilled ? plural(r.spilled, "event") : null], ["Holding", r.holding && "yes: it spills no more and reads the CDC log later"],
      ["Blocked", r.blocked_aggregates !== undefined && plural(r.blocked_aggregates, "aggregate")],
      ["Backfill", r.backfill?.running && `${count(r.backfill.ranges_done)} of ${count(r.backfill.ranges)} ranges`],
      ["Table", r.table], ["Process", `${r.instance}${r.version ? `, ${r.version}` : ""}`],
    ]),
    !stale && groups.length + lag.length > 0 && h("details", { class: "gap", open: unfolded.has(key), ontoggle: (e) => { e.target.open ? unfolded.add(key) : unfolded.delete(key); } }, h("summary", { "data-key": `lag-${key}` }, `Lag of ${plural(r.streams, "stream")}`),
      groups.length > 0 && [h("h3", null, "By parts of the ring"), bars(groups.map((g) => ({ ...g, name: `part ${g.part} of ${g.parts}`, title: `from token ${g.from_token}`, more: plural(g.streams, "stream") })))],
      lag.length > 0 && [h("h3", { class: "gap" }, "Streams with the largest lag"), bars(lag.map((g) => ({ ...g, name: short(g.name), title: g.name, mono: true })))]),
  ];
}

// bars show the lag of each beside the others.
function bars(all) {
  const most = Math.max(0.001, ...all.map((g) => g.behind_seconds));
  return h("ul", { class: "bars lag" }, all.map((g) => h("li", null, h("span", { class: `bars-name${g.mono ? " mono" : ""}`, title: g.title }, g.name, g.more && h("span", { class: "muted" }, ` · ${g.more}`)), h("b", null, seconds(g.behind_seconds)),
    h("span", { class: "bars-bar", "aria-hidden": "true", css: { "--share": `${(g.behind_seconds / most) * 100}%` } }))));
}
