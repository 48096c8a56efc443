// The timeline of an aggregate: everything that is known of it, in one list.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { count, stamp, visible } from "../format.js";
import { copyButton, failed, finder, loading, panel } from "../parts.js";
import { go, href } from "../router.js";

export function aggregate(ctx) {
  const id = ctx.params.id;
  ctx.title(`Aggregate ${id}`);
  const body = h("div", { class: "stack" }, loading("its timeline"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("p", { class: "crumbs small" }, h("a", { href: href("/events"), "data-key": "crumb" }, "Events"), " / ", h("span", { class: "mono break" }, visible(id)), copyButton(id, "aggregate id")),
    h("div", { class: "row between" }, h("h1", { tabindex: "-1" }, "Aggregate"), search())), body));
  const read = ctx.reader(async () => {
    const a = await api.aggregate(id, null, ctx.signal);
    fill(body, timeline(a, older(a)));
  }, body, (err) => err.status === 404 && fill(body, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "This aggregate is unknown."), h("p", { class: "muted break" }, "No outbox row, no record, no dead letter and no scheduled message of it was found. ", visible(err.body?.hint ?? "")), h("div", { class: "row" }, h("a", { class: "button", href: href("/events") }, "Newest events")))));
  // older is the button that adds the next page.
  const older = (a) => a.next && h("button", { type: "button", class: "button", "data-key": "older", onclick: async (e) => {
    e.target.disabled = true;
    try {
      const more = await api.aggregate(id, a.next, ctx.signal);
      const all = { ...more, entries: [...a.entries, ...more.entries] };
      fill(body, timeline(all, older(all)));
    } catch (err) {
      if (!ctx.signal.aborted) fill(body, failed(err, read));
    }
  } }, "Older entries");
  ctx.soon(["dead_letters"], read);
  read();
}

// search opens what has an id: an event, or an aggregate.
export const search = () => finder("Open an event or an aggregate by its id", "event or aggregate id", async (id, uuid) => {
  const event = uuid && await api.event(id).then(() => true, (err) => err.status !== 404);
  go(event ? `/events/${id}` : `/aggregates/${encodeURIComponent(id)}`);
}, true);

const timeline = (a, more) => panel("Timeline", { aside: h("span", { class: "small muted" }, "newest first") },
  h("ol", { class: "timeline gap" }, a.entries.map((e) => h("li", { class: `t-${tones[e.kind] ?? "archived"}`, "data-kind": e.kind },
    h("p", { class: "break" }, h("b", null, e.kind === "dead_letter_changed" ? `dead letter: ${e.what}` : e.what), " ", link(e), e.event_type && h("span", { class: "muted" }, ` ${visible(e.event_type)}`), e.sequence ? h("span", { class: "muted" }, ` #${count(e.sequence)}`) : null),
    h("p", { class: "small muted break" }, e.at ? stamp(e.at) : "time not known", place(e)),
    e.detail && h("p", { class: "small break" }, visible(e.detail))))),
  more && h("p", { class: "gap" }, more),
  a.gaps.length > 0 && h("div", { class: "gap" }, h("h3", null, "Unknown"), h("ul", { class: "small muted plain" }, a.gaps.map((g) => h("li", { class: "break" }, visible(g))))));

// link leads to what an entry is about.
function link(e) {
  if (e.kind === "scheduled") return h("a", { class: "mono", href: href(`/scheduled/${e.message_id}`) }, e.message_id);
  if (e.dead_letter_id) return h("a", { class: "mono", href: href(`/dead-letters/${e.dead_letter_id}`) }, e.event_id || e.dead_letter_id);
  return h("a", { class: "mono", href: href(`/events/${encodeURIComponent(e.event_id)}`) }, visible(e.event_id));
}

// place is where a record is, as a part of a line.
export const place = (e) => (e.topic && e.offset !== undefined ? [" · ", h("a", { href: href(`/topics/${encodeURIComponent(e.topic)}`, { partition: String(e.partition) }) }, `${visible(e.topic)}[${e.partition}]@${e.offset}`)] : null);

const tones = { published: "resolved", dead_letter: "failed", edited: "suspended", dead_letter_changed: "processing", scheduled: "pending" };
