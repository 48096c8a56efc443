// One dead letter: its content, its error, its history, and the events blocked behind it.
import { act, buttons, possible } from "../act.js";
import { api } from "../api.js";
import { decoded, first, headers, pairs, payload } from "../content.js";
import { fill, h, icon } from "../dom.js";
import { ago, count, known, plural, short, stamp, visible } from "../format.js";
import * as keys from "../keys.js";
import { badge, copyButton, facts, loading, panel } from "../parts.js";
import { go, href } from "../router.js";
import { may } from "../session.js";
import { actions, classMeans, outcomes, statusMeans } from "../words.js";
import { biography } from "./event.js";

export function deadLetter(ctx) {
  const id = ctx.params.id;
  ctx.title(`Dead letter ${short(id)}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Dead letter"), loading("the dead letter"));
  const state = { view: "", life: null };
  let l = null;

  const read = ctx.reader(async () => {
    const now = await api.deadLetter(id, ctx.signal);
    // The biography reads the topics, which takes longer, so it is drawn later.
    if (now.status !== l?.status) api.event(id, ctx.signal).then((life) => { state.life = life; draw(); }, () => { /* its own page shows the error */ });
    l = now;
    state.view ||= first(decoded(l, l.payload_decoded));
    draw();
  }, (why) => fill(ctx.el, h("h1", { tabindex: "-1" }, "Dead letter"), why), (err) => err.status === 404 && fill(ctx.el, h("h1", { tabindex: "-1" }, "No such dead letter"), h("div", { class: "empty" }, h("p", { class: "empty-title" }, "This event is not a dead letter."), h("p", { class: "muted" }, "It may have been published, or retention has removed its dead letter."), h("div", { class: "row" }, h("a", { class: "button", href: href(`/events/${id}`) }, "History of the event"), h("a", { class: "button", href: href("/dead-letters") }, "All dead letters")))));
  const run = (name) => act(name, { id, etag: l.etag }, (job) => (job?.id ? go(`/jobs/${job.id}`) : read()));
  const draw = () => {
    const names = possible([l.status]).filter((a) => !l.may || l.may.includes(a));
    const [why, help] = classMeans(l.error_class);
    fill(ctx.el, h("div", { class: "stack" },
      h("header", { class: "detail-head" },
        h("p", { class: "crumbs small" }, h("a", { href: href("/dead-letters", { status: "open" }), "data-key": "crumb" }, "Dead letters"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "event id")),
        h("div", { class: "row between" },
          h("div", { class: "row title" }, h("h1", { tabindex: "-1", class: "break" }, l.event_type || "Event"), badge(l.status, l.unblocked, l.outcome?.kind), h("span", { class: "muted" }, statusMeans[l.status])),
          h("div", { class: "row actions" }, l.blocked_by
            ? [h("a", { class: "button primary", href: href(`/dead-letters/${l.blocked_by}`), "data-key": "blocker" }, "Go to what blocks it"), names.length > 0 && h("details", { class: "more" }, h("summary", { class: "button" }, "Other actions"), h("div", { class: "row actions" }, buttons(names, run, "")))]
            : buttons(names, run),
            may("edit") && editable(l) && h("a", { class: "button", href: href(`/dead-letters/${id}/edit`), "data-key": "edit" }, "Edit and replay"),
            !names.length && h("span", { class: "muted small" }, may("replay") ? (l.status === "processing" ? "A relay is replaying it; no other action is allowed." : "It is settled; no action is left.") : "Your role is read-only.")))),
      standing(l),
      h("div", { class: "detail" },
        h("div", { class: "stack" },
          panel("Cause", { aside: h("a", { href: href("/dead-letters", { status: "open", error_class: l.error_class }), "data-key": "same" }, "Same error class") },
            h("p", null, h("b", null, l.error_class), l.error_code && h("span", { class: "code-tag mono" }, l.error_code)), h("p", null, why, " ", h("span", { class: "muted" }, help)),
            l.error_text && h("pre", { class: "code error-text", tabindex: "0", "aria-label": "Error text" }, visible(l.error_text)),
            (l.error_chain ?? []).length > 0 && h("details", { open: true }, h("summary", null, `Error chain, ${plural(l.error_chain.length, "step")}`), h("ol", { class: "chain" }, l.error_chain.map((s) => h("li", { class: "mono break" }, visible(s)))))),
          payload(decoded(l, l.payload_decoded), state, draw),
          headers(l.headers, state, draw),
          Object.keys(l.raw ?? {}).length > 0 && pairs("Raw columns", l.raw, { says: "The readable columns of a row that is not an event." }),
          Object.keys(l.metadata ?? {}).length > 0 && pairs("Metadata of the relay", l.metadata)),
        h("div", { class: "stack" },
          details(l, ctx.conf),
          timeline(l),
          followers(l),
          biography(state.life)))));
  };

  ctx.soon(["dead_letters"], read, 700);
  for (const [key, name] of [["r", "replay"], ["l", "unblock"], ["s", "resolve"], ["d", "discard"]]) {
    if (may(name)) keys.onPage(key, actions[name].title.toLowerCase(), () => ctx.el.querySelector(`[data-key="act-${name}"]`)?.click());
  }
  if (may("edit")) keys.onPage("e", "edit and replay", () => l && editable(l) && go(`/dead-letters/${id}/edit`));
  keys.onPage("u", "up to the dead letters", () => go("/dead-letters?status=open"));
  read();
}

export const editable = (l) => ["pending", "blocked", "failed", "suspended"].includes(l.status);

// standing shows why this dead letter waits, and what to do about it.
function standing(l) {
  if (l.status === "blocked") return h("p", { class: "callout" }, "It waits behind ", h("a", { href: href("/dead-letters", { aggregate_id: l.aggregate_id, status: "open" }), "data-key": "ahead" }, l.position > 1 ? `${plural(l.position - 1, "earlier dead letter")} of its aggregate` : "an earlier dead letter of its aggregate"), ", and is published after it. To act, act on the first.");
  if (l.status === "processing") return h("p", { class: "callout" }, `Claimed by ${l.claimed_by || "a relay"} until `, known(l.claimed_until) ? stamp(l.claimed_until) : "its claim runs out", ". Until then nobody else may act on it.");
  if (l.status === "resolved" && l.outcome) return h("p", { class: `callout ${l.outcome.kind === "discarded" ? "" : "good"}` }, h("b", null, outcomes[l.outcome.kind]?.[1] ?? l.outcome.kind), l.outcome.topic ? [" It is in ", h("span", { class: "mono" }, `${l.outcome.topic}[${l.outcome.partition}]@${l.outcome.offset}`), "."] : "", known(l.resolved_at) ? [" ", ago(l.resolved_at), "."] : "", l.outcome.note ? ` “${visible(l.outcome.note)}”` : "");
  if (l.status === "pending") return h("p", { class: "callout" }, "Replayed automatically ", known(l.next_attempt) ? ["", ago(l.next_attempt), ` (${stamp(l.next_attempt)})`] : "as soon as the relay can", l.strategy ? `, by the strategy “${l.strategy}”` : "", l.rule ? ` (rule ${l.rule})` : "", l.waits_for ? `. It waits for ${l.waits_for}.` : ".");
  if (l.status === "failed") return h("p", { class: "callout bad" }, `${plural(l.replays ?? 0, "replay")} failed; no further automatic replay follows. `, l.failure_repeats > 1 ? `It failed ${count(l.failure_repeats)} times in a row with the same error. Fix the cause before you replay it.` : "");
  return null;
}

function details(l, conf) {
  const trace = traceLink(l, conf);
  return panel("Event", {}, facts([
    ["Aggregate", h("span", null, l.aggregate_type ? `${l.aggregate_type} ` : "", h("a", { class: "mono", href: href("/dead-letters", { aggregate_id: l.aggregate_id }), "data-key": "aggregate" }, l.aggregate_id))],
    ["Sequence", l.sequence ? count(l.sequence) : null], ["Priority", String(l.priority ?? 0)], ["Tags", (l.tags ?? []).join(", ")], ["Topic", l.topic], [l.table?.startsWith("subscription.") ? "Subscription" : "Table", l.table && h("a", { href: href("/dead-letters", { table: l.table }), "data-key": "table" }, l.table.replace(/^subscription\./, ""))],
    ["Stored", known(l.created_at) ? stamp(l.created_at) : null], ["Deliver at", known(l.deliver_at) ? stamp(l.deliver_at) : null],
    ["First failed", [stamp(l.first_failed_at), " · ", ago(l.first_failed_at)]], ["Last failed", known(l.last_failed_at) && l.last_failed_at !== l.first_failed_at ? [stamp(l.last_failed_at), " · ", ago(l.last_failed_at)] : null],
    ["Attempts", count(l.attempts)], ["Failed replays", l.replays ? count(l.replays) : null],
    ["Same error", l.failure_repeats > 1 ? `${count(l.failure_repeats)} times in a row` : null], ["Next attempt", known(l.next_attempt) && l.status === "pending" ? stamp(l.next_attempt) : null], ["Strategy", l.strategy], ["Rule", l.rule],
    ["Published as", l.edited_to && h("a", { class: "mono", href: href(`/events/${l.edited_to}`), "data-key": "edited" }, l.edited_to)],
    ["Trace", trace && (trace.href ? h("a", { href: trace.href, target: "_blank", rel: "noopener noreferrer", "data-key": "trace" }, h("span", { class: "mono" }, trace.id), " ", icon("out")) : h("span", { class: "mono" }, trace.id))],
  ]));
}

// traceLink reads traceparent (W3C Trace Context): 00-trace-span-flags.
function traceLink(l, conf) {
  const m = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/.exec(l.headers?.traceparent ?? "");
  if (!m) return null;
  const url = conf.trace_url?.replaceAll("{trace_id}", m[1]).replaceAll("{span_id}", m[2]);
  return { id: m[1], href: url && /^https?:\/\//.test(url) ? url : null };
}

// timeline is the history of the dead letter: every change, newest last.
function timeline(l) {
  const all = l.history ?? [];
  return panel("History", { aside: h("span", { class: "small muted" }, plural(all.length, "change")) }, h("ol", { class: "timeline" }, all.map((c, i) => h("li", { class: `t-${c.to}` },
    h("p", null, h("b", null, said[c.action] ?? c.action), " ", h("span", { class: "muted" }, c.from && c.from !== c.to ? `${c.from} → ${c.to}` : c.to)),
    h("p", { class: "small muted break" }, stamp(c.at), i ? ` · ${gap(all[i - 1].at, c.at)} later` : "", c.by ? ` · ${c.by}` : ""),
    c.why && h("p", { class: "small break" }, visible(c.why)), c.outcome && h("p", { class: "small break" }, visible(c.outcome))))));
}

const gap = (a, b) => { const ms = new Date(b) - new Date(a); return ms < 1000 ? `${Math.max(0, ms)} ms` : ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : ms < 3600_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3600_000).toFixed(1)} h`; };

const said = {
  write: "Dead letter written", claim: "Replay started", extend: "Claim extended", unclaim: "Replay cancelled", fail: "Replay failed", settle: "Published",
  replay: "Replay requested", discard: "Discarded", unblock: "Unblocked", suspend: "Suspended", resolve: "Resolved by hand", reopen: "Reopened", archive: "Archived", edit: "Edited", redirect: "Redirected", set: "Priority or tags set",
};

function followers(l) {
  const all = l.followers ?? [], n = l.follower_count ?? all.length;
  return panel("Blocked events", { aside: h("span", { class: "small muted" }, n ? plural(n, "event") : "") }, all.length
    ? h("ol", { class: "followers" }, all.slice(0, 50).map((x) => h("li", null, h("a", { class: "mono", href: href(`/dead-letters/${x.event_id}`), title: x.event_id, "data-key": `f-${x.event_id}` }, short(x.event_id)), h("span", { class: "grow clip" }, x.event_type), x.sequence ? h("span", { class: "muted" }, `#${count(x.sequence)}`) : null, badge(x.status))), n > 50 && h("li", { class: "muted" }, h("a", { href: href("/dead-letters", { aggregate_id: l.aggregate_id, status: "blocked" }) }, `and ${count(n - 50)} more`)))
    : h("p", { class: "muted" }, "It blocks no later event of its aggregate."));
}
