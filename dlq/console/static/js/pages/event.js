// The biography of an event: everything that is known of it, dead or not.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { short, utc, visible } from "../format.js";
import { copyButton, failed, loading, panel } from "../parts.js";
import { href } from "../router.js";

export function event(ctx) {
  const id = ctx.params.id;
  ctx.title(`Event ${short(id)}`);
  const body = h("div", { class: "stack" }, loading("what is known of it"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("p", { class: "crumbs small" }, h("a", { href: href("/letters") }, "Letters"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "event id")), h("h1", { tabindex: "-1" }, "Event")), body));
  const read = async () => {
    try {
      const life = await api.event(id, ctx.signal);
      fill(body, biography(life, true));
    } catch (err) {
      if (ctx.signal.aborted) return;
      if (err.status === 404) fill(body, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "Nothing is known of this event."), h("p", { class: "muted" }, "No outbox row, no record and no dead letter with this id was found. Outbox rows are removed after a week by default; see that the id is whole."), h("div", { class: "row" }, h("a", { class: "button", href: href("/letters") }, "All letters"))));
      else fill(body, failed(err, read));
    }
  };
  ctx.soon(["letters"], read);
  read();
}

// biography is the panel of it; null where nothing is known.
export function biography(life, alone) {
  if (!life) return null;
  const steps = life.steps ?? life.timeline ?? life.events ?? [];
  return panel("Biography", { aside: !alone && h("a", { href: href(`/events/${life.event_id}`), "data-key": "life" }, "On its own page") }, steps.length
    ? h("ol", { class: "timeline" }, steps.map((s) => h("li", { class: `t-${tone(s)}` },
      h("p", null, h("b", null, s.title ?? s.what ?? s.kind)), h("p", { class: "small muted" }, s.at ? utc(s.at) : "time not known", s.source ? ` · ${s.source}` : ""),
      s.detail && h("p", { class: "small break" }, visible(s.detail)))))
    : h("p", { class: "muted" }, "Nothing is recorded but its letter."),
  (life.gaps ?? life.unknown ?? []).length > 0 && h("ul", { class: "small muted plain" }, (life.gaps ?? life.unknown).map((g) => h("li", null, g))),
  alone && life.letter && h("p", null, h("a", { class: "button", href: href(`/letters/${life.event_id}`) }, "To its letter")));
}

const tone = (s) => ({ published: "resolved", dead: "failed", dead_letter: "failed", stored: "archived" })[s.kind] ?? "archived";
