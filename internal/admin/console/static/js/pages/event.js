// The biography of an event: its complete recorded history.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, stamp, timed, visible } from "../format.js";
import { copyButton, facts, loading, mark, panel } from "../parts.js";
import { href } from "../router.js";
import { progressStates } from "../words.js";

export function event(ctx) {
  const id = ctx.params.id;
  ctx.title(`Event ${short(id)}`);
  const body = h("div", { class: "stack" }, loading("its history"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("p", { class: "crumbs small" }, h("a", { href: href("/events") }, "Events"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "event id")), h("h1", { tabindex: "-1" }, "Event")), body));
  const read = ctx.reader(async () => {
    const life = await api.event(id, ctx.signal);
    fill(body, biography(life, true), subscribed(life.subscriptions));
  }, body, (err) => err.status === 404 && fill(body, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "This event is unknown."), h("p", { class: "muted" }, "No outbox row, no record and no dead letter with this id was found. Outbox rows are removed after a week by default. Check that the id is complete."), h("div", { class: "row" }, h("a", { class: "button", href: href(`/aggregates/${id}`), "data-key": "aggregate" }, "Search it as an aggregate"), h("a", { class: "button", href: href("/dead-letters") }, "All dead letters")))));
  ctx.soon(["dead_letters"], read);
  read();
}

// biography is the panel of it; null where nothing is known yet.
export function biography(life, alone) {
  if (!life) return null;
  return panel("History of the event", { aside: !alone && h("a", { href: href(`/events/${life.event_id}`), "data-key": "life" }, "On its own page") },
    facts([...(alone ? [["Type", life.event_type], ["Aggregate", life.aggregate_id && h("a", { class: "mono", href: href(`/aggregates/${encodeURIComponent(life.aggregate_id)}`), "data-key": "aggregate" }, visible(life.aggregate_id))], ["Sequence", life.sequence ? count(life.sequence) : null]] : []),
      ["Captured by", life.captured && (captured[life.captured] ?? life.captured)], ["Attempts", life.attempts ? count(life.attempts) : null], ["Breaker", life.breaker],
      ...(alone ? [["Edit of", life.edit_of && h("a", { class: "mono", href: href(`/dead-letters/${life.edit_of}`) }, life.edit_of)], ["Published as", life.edited_to && h("a", { class: "mono", href: href(`/events/${life.edited_to}`) }, life.edited_to)]] : [])]),
    life.steps.length
      ? h("ol", { class: "timeline gap" }, life.steps.map((s) => h("li", { class: `t-${tones[s.kind] ?? "archived"}` },
        h("p", { class: "break" }, h("b", null, s.what)), h("p", { class: "small muted break" }, s.at ? stamp(s.at) : "time not known", s.source ? ` · ${s.source}` : "", s.topic ? ` · ${s.topic}[${s.partition}]@${s.offset}` : ""),
        s.detail && h("p", { class: "small break" }, timed(s.detail)))))
      : h("p", { class: "muted" }, "Nothing is recorded."),
    life.gaps?.length > 0 && h("div", { class: "gap" }, h("h3", null, "Unknown"), h("ul", { class: "small muted plain" }, life.gaps.map((g) => h("li", { class: "break" }, visible(g))))),
    alone && life.dead_letter && h("p", { class: "gap" }, h("a", { class: "button", href: href(`/dead-letters/${life.dead_letter_id}`), "data-key": "dead-letter" }, "Show the dead letter")));
}

// subscribed is the panel of the states of a message in subscriptions; null without any.
export function subscribed(all) {
  if (!all?.length) return null;
  const detail = (p) => [
    p.lease_until && ["leased until ", stamp(p.lease_until)], p.next_attempt && ["next delivery ", ago(p.next_attempt)],
    p.processed_at && ["acknowledged ", stamp(p.processed_at)], p.processed_before && ["ended at or before ", stamp(p.processed_before)],
    p.dead_letter_id && h("a", { href: href(`/dead-letters/${p.dead_letter_id}`) }, "dead letter"), p.detail && visible(p.detail), p.error && h("span", { class: "danger-text" }, visible(p.error)),
  ].filter(Boolean).flatMap((part, i) => i ? [" · ", part] : [part]);
  return panel("Subscriptions", {}, h("ul", { class: "plain" }, all.map((p) => h("li", { class: "break" },
    h("p", null, h("a", { href: href(`/subscriptions/${p.subscription}`) }, visible(p.subscription)), " ", mark(progressStates, p.state), p.attempts ? h("span", { class: "muted" }, ` ${plural(p.attempts, "delivery", "deliveries")}`) : null),
    h("p", { class: "small muted break" }, detail(p).flat())))));
}

const captured = { tail: "the tail reader", sweep: "the sweep reader", key: "a lookup by its key", backfill: "a backfill" };
const tones = { published: "resolved", dead_letter: "failed", edited: "suspended", dead_letter_changed: "processing" };
