// How things stand, for somebody who was just woken up.
import { api } from "../api.js";
import { chart } from "../chart.js";
import { fill, h, icon } from "../dom.js";
import { ago, count, known, plural, span } from "../format.js";
import { live } from "../live.js";
import { badge, empty, facts, failed, loading, meter, panel } from "../parts.js";
import { href } from "../router.js";
import { classMeans, open, statusMeans, statuses } from "../words.js";

const kept = 15 * 60_000;
// seen is what the stream said since this tab was opened: the charts. It outlives
// the page, so that going to a letter and back does not empty them.
const seen = { open: [], in: [], out: [] };
let last = null;

live.addEventListener("stats", ({ detail }) => remember(detail));

function remember(s) {
  const now = Date.now();
  const all = Object.values(s.by_status ?? {}).reduce((a, b) => a + b, 0), openNow = s.open ?? 0, gone = all - openNow;
  if (last && now > last.now) {
    const minutes = (now - last.now) / 60_000;
    // What retention removed makes the sums smaller; that is no rate.
    seen.in.push([now, s.rate_in ?? Math.max(0, all - last.all) / minutes]);
    seen.out.push([now, s.rate_out ?? Math.max(0, gone - last.gone) / minutes]);
  }
  seen.open.push([now, openNow]);
  last = { now, all, gone };
  for (const k of Object.keys(seen)) while (seen[k].length && seen[k][0][0] < now - kept) seen[k].shift();
}

export function overview(ctx) {
  ctx.title("Overview");
  const verdict = h("div", { class: "verdict" }), body = h("div", { class: "overview" });
  fill(ctx.el, h("div", { class: "stack" }, h("h1", { tabindex: "-1", class: "hidden-text" }, "Overview"), verdict, body));
  fill(body, loading("how things stand"));
  let stats, relays, groups, relaysErr;

  const read = async () => {
    try {
      const [s, r, g] = await Promise.all([api.stats(ctx.signal), api.relays(ctx.signal).catch((e) => e), api.groups(ctx.signal).catch(() => null)]);
      stats = s;
      relaysErr = r instanceof Error ? r : null;
      relays = relaysErr ? [] : r.relays ?? [];
      groups = g?.groups ?? null;
      if (!last) remember(stats);
      draw();
    } catch (err) {
      if (!ctx.signal.aborted && !stats) fill(body, failed(err, read));
    }
  };
  const draw = () => {
    if (ctx.signal.aborted || !stats) return;
    fill(verdict, say(stats, relays, relaysErr));
    fill(body,
      h("div", { class: "stack" }, backlog(stats), charts(), classesOf(stats, groups)),
      h("div", { class: "stack" }, relayPanels(relays, relaysErr)));
  };
  ctx.on(["stats"], (s) => { if (stats) { stats = s; draw(); } });
  ctx.on(["relays"], (r) => { if (stats) { relays = r.relays ?? r; relaysErr = null; draw(); } });
  ctx.soon(["letters"], read, 1000);
  read();
}

const stateOf = (r) => r.breaker?.state ?? "";
export const silent = (r) => r.stale === true || (r.at && Date.now() - new Date(r.at).getTime() > 30_000);

// say is the verdict: the worst thing first, in words.
function say(s, relays, relaysErr) {
  const broken = relays.filter((r) => !silent(r) && stateOf(r) && stateOf(r) !== "closed"), quiet = relays.filter(silent);
  const yours = (s.by_status?.failed ?? 0) + (s.by_status?.manual ?? 0);
  let tone = "ok", title, more = [];
  if (broken.length) { tone = "bad"; title = `The circuit breaker is ${stateOf(broken[0]).replace("_", "-")}.`; more.push(`${broken[0].breaker.cause || broken[0].breaker.last_error || "The broker does not take events."}`); }
  else if (quiet.length) { tone = "bad"; title = `${plural(quiet.length, "relay")} ${quiet.length === 1 ? "has" : "have"} not been heard of.`; more.push("What it would replay or publish waits until it is back."); }
  else if (yours) { tone = "warn"; title = `${plural(yours, "letter")} ${yours === 1 ? "waits" : "wait"} for you.`; }
  else if (s.open) { tone = "info"; title = `${plural(s.open, "letter")} ${s.open === 1 ? "is" : "are"} open; the relay replays ${s.open === 1 ? "it" : "them"} by itself.`; }
  else title = "No dead letters are open.";
  if (s.open) {
    if (tone === "bad" && (broken.length || quiet.length)) more.push(`${plural(s.open, "letter")} open.`);
    else if (yours && s.open > yours) more.push(`${plural(s.open - yours, "other")} ${s.open - yours === 1 ? "goes" : "go"} on without you.`);
  } else if (tone === "ok") more.push(relays.length ? "All that was stored is published or on its way." : "");
  if (relaysErr) more.push("The state of the relays could not be read.");
  return h("div", { class: `say ${tone}` }, icon(tone === "ok" ? "check" : "warn"), h("div", { class: "grow" }, h("p", { class: "say-title" }, title), h("p", { class: "break" }, more.filter(Boolean).join(" "))),
    known(s.oldest) && s.open ? h("p", { class: "oldest" }, h("span", { class: "muted small" }, "Oldest"), h("b", null, ago(s.oldest))) : null);
}

function backlog(s) {
  const n = (st) => s.by_status?.[st] ?? 0;
  return panel("Letters", { aside: h("a", { href: href("/letters", { status: "open" }), "data-key": "all-open" }, "All open") },
    h("div", { class: "figures" }, h("p", { class: "figure" }, h("b", null, count(s.open)), " open")),
    meter(open.map((st) => ({ name: st, value: n(st) }))),
    h("ul", { class: "statuses" }, statuses.map((st) => h("li", { title: statusMeans[st] },
      h("a", { href: href("/letters", { status: st }), "data-key": `st-${st}`, class: n(st) ? null : "zero" }, badge(st), h("b", null, count(n(st))))))));
}

function classesOf(s, groups) {
  const all = Object.entries(s.open_by_error_class ?? s.open_by_class ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  const most = all[0]?.[1] ?? 1;
  return panel("Why they died", { aside: h("a", { href: href("/groups"), "data-key": "groups" }, groups?.length ? plural(groups.length, "group") : "Groups") },
    all.length ? h("ul", { class: "bars" }, all.slice(0, 8).map(([name, n]) => h("li", null,
      h("a", { href: href("/letters", { status: "open", error_class: name }), "data-key": `c-${name}` }, h("span", { class: "bars-name" }, name || "(none)"), h("b", null, count(n)), h("span", { class: "bars-bar", "aria-hidden": "true", css: { "--share": `${(n / most) * 100}%` } })),
      h("p", { class: "small muted" }, classMeans(name)[0]))))
      : h("p", { class: "muted" }, "No letter is open. When events die, their causes stand here, most first."));
}

function charts() {
  const now = Date.now(), from = seen.open.length ? Math.min(seen.open[0][0], now - 60_000) : now - 60_000;
  const at = (list) => (list.length ? list[list.length - 1][1] : 0);
  const since = seen.open.length ? span(now - seen.open[0][0]) : "now";
  return panel("Live", { aside: h("span", { class: "small muted" }, `the last ${since}, since this tab was opened`) },
    h("div", { class: "charts" },
      h("div", null, h("h3", null, "Open letters"), chart({ from, to: now, label: `Open letters over the last ${since}: now ${count(at(seen.open))}`, series: [{ name: "Open", colour: "open", area: true, points: seen.open }] })),
      h("div", null, h("h3", null, "Letters per minute"), chart({ from, to: now, label: `Letters per minute: ${at(seen.in).toFixed(1)} die, ${at(seen.out).toFixed(1)} are settled`,
        series: [{ name: "Die", colour: "in", points: seen.in }, { name: "Settled", colour: "out", points: seen.out }] }))));
}

function relayPanels(relays, err) {
  if (err) return panel("Relays", {}, h("p", { class: "danger-text" }, `Could not be read: ${err.message}.`));
  if (!relays.length) return panel("Relays", {}, empty("No relay has been heard of.", "A relay writes a heartbeat when it runs. Without one nothing is published, and nothing is replayed."));
  return relays.map((r) => panel(r.name || r.owner || "Relay", { aside: silent(r) ? h("span", { class: "badge b-failed" }, "silent") : h("span", { class: "small muted" }, "heard of ", ago(r.at)) }, relayView(r)));
}

const seconds = (v) => (typeof v === "number" ? span(v * 1000) : v);

function relayView(r) {
  const b = r.breaker ?? {}, lag = r.streams ?? r.stream_groups ?? r.lag ?? [];
  const most = Math.max(1, ...lag.map((g) => g.behind_seconds ?? 0));
  return [
    facts([
      ["Breaker", b.state && h("span", null, h("span", { class: `badge ${b.state === "closed" ? "b-resolved" : b.state === "open" ? "b-failed" : "b-pending"}` }, b.state.replace("_", "-")), known(b.since) ? [" since ", ago(b.since)] : null)],
      ["Cause", b.cause || b.last_error],
      ["Behind", seconds(r.behind_seconds)],
      ["On the way", r.in_flight !== undefined && plural(r.in_flight, "event")],
      ["Parked aggregates", r.parked_aggregates !== undefined && count(r.parked_aggregates)],
      ["Host", r.host], ["Version", r.version],
    ]),
    (r.problems ?? []).length > 0 && h("ul", { class: "problems" }, r.problems.map((p) => h("li", null, p))),
    lag.length > 0 && [h("h3", { class: "gap" }, "Behind, by stream group"), h("ul", { class: "bars lag" }, lag.map((g) => h("li", null, h("span", { class: "bars-name mono" }, g.group ?? g.name ?? g.id), h("b", null, seconds(g.behind_seconds)),
      h("span", { class: "bars-bar", "aria-hidden": "true", css: { "--share": `${((g.behind_seconds ?? 0) / most) * 100}%` } }))))],
  ];
}
