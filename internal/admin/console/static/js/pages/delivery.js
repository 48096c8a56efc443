// One delivery: its content, its attempts, and repeating it.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, span, utc, visible } from "../format.js";
import { pretty, prettyText, prettyView } from "../json.js";
import * as keys from "../keys.js";
import { copyButton, facts, failed, loading, mark, panel } from "../parts.js";
import { repeatOne } from "../repeat.js";
import { href } from "../router.js";
import { may } from "../session.js";
import { deliveryStates } from "../words.js";

export function delivery(ctx) {
  const id = ctx.params.id;
  ctx.title(`Delivery ${short(id)}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Delivery"), loading("the delivery"));
  let d = null;

  const read = async () => {
    try {
      const now = await api.delivery(id, ctx.signal);
      if (JSON.stringify(now) === JSON.stringify(d)) return;
      d = now;
      draw();
    } catch (err) {
      if (ctx.signal.aborted) return;
      if (err.status === 404) return fill(ctx.el, h("h1", { tabindex: "-1" }, "No such delivery"), h("div", { class: "empty" }, h("p", { class: "empty-title" }, "There is no delivery with this id."), h("p", { class: "muted" }, "Retention may have removed it: by default delivered ones are kept for a week, failed ones for 30 days."), h("div", { class: "row" }, h("a", { class: "button", href: href("/reactions") }, "All deliveries"))));
      if (!d) fill(ctx.el, h("h1", { tabindex: "-1" }, "Delivery"), failed(err, read));
    }
  };

  function draw() {
    const open = d.state === "pending";
    fill(ctx.el, h("div", { class: "stack" },
      h("header", { class: "detail-head" },
        h("p", { class: "crumbs small" }, h("a", { href: href("/reactions", { rule: d.rule }), "data-key": "crumb" }, "Reactions"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "delivery id")),
        h("div", { class: "row between" },
          h("div", { class: "row title" }, h("h1", { tabindex: "-1", class: "break" }, `${visible(d.event_type || "Event")} to ${visible(d.plugin || d.rule)}`), mark(deliveryStates, d.state), h("span", { class: "muted" }, deliveryStates[d.state]?.[1])),
          h("div", { class: "row actions" },
            !open && may("repeat") && h("button", { type: "button", class: "button primary", "data-key": "act-repeat", onclick: () => ask(repeatOne(id, read)) }, "Repeat"),
            !may("repeat") && h("span", { class: "muted small" }, "Your role is read-only.")))),
      standing(d),
      h("div", { class: "detail" },
        h("div", { class: "stack" }, attempts(d), payload(d)),
        h("div", { class: "stack" }, about(d), headers(d.event)))));
  }

  ctx.soon(["reactions", "deliveries"], read);
  if (may("repeat")) keys.onPage("r", "repeat", () => ctx.el.querySelector("[data-key=act-repeat]")?.click());
  keys.onPage("u", "up to the deliveries", () => ctx.el.querySelector("[data-key=crumb]")?.click());
  read();
}

function standing(d) {
  if (d.state === "failed") return h("div", { class: "callout bad" }, h("p", null, d.attempts ? `${plural(d.attempts, "attempt")} failed; no further automatic attempt follows.` : "Its rule could not be evaluated; the plugin was not called."), d.error && h("pre", { class: "code error-text", tabindex: "0", "aria-label": "Last error" }, visible(d.error)));
  if (d.state !== "pending") return null;
  return h("p", { class: "callout" }, d.next_attempt ? ["The next attempt is ", ago(d.next_attempt), ` (${utc(d.next_attempt)}).`] : "It is tried as soon as capacity is free.", d.error ? ` Last error: ${visible(d.error)}` : "");
}

// attempts are the last ones, newest last; those before a repeat are among them.
function attempts(d) {
  const all = d.tries ?? [];
  return panel("Attempts", { aside: h("span", { class: "small muted" }, all.length ? `the last ${count(all.length)}` : "") }, all.length
    ? h("ol", { class: "timeline" }, all.map((t) => h("li", { class: t.error ? "t-failed" : "t-resolved" },
      h("p", null, h("b", null, t.error ? "Failed" : "Accepted"), t.repeat ? h("span", { class: "muted" }, ` after repeat ${count(t.repeat)}`) : ""),
      h("p", { class: "small muted" }, utc(t.at), ` · took ${t.took_ms ? span(t.took_ms) : "less than 1 ms"}`),
      t.error && h("p", { class: "small break" }, visible(t.error)))))
    : h("p", { class: "muted" }, "No attempt has ended yet."));
}

function about(d) {
  return panel("Delivery", {}, facts([
    ["Rule", h("a", { href: href("/reactions", { rule: d.rule }), "data-key": "rule" }, visible(d.rule))], ["Leads to", d.plugin && h("a", { href: href("/reactions", { plugin: d.plugin }), "data-key": "plugin" }, visible(d.plugin))],
    ["Attempts", count(d.attempts)], ["Started", [utc(d.created_at), " · ", ago(d.created_at)]], ["Changed", [utc(d.changed_at), " · ", ago(d.changed_at)]],
    ["Repeated", d.repeats && `${plural(d.repeats, "time")}, last by ${visible(d.repeated_by)}`], ["Why", d.reason && visible(d.reason)],
    ["Event", d.event_id && h("a", { class: "mono", href: href(`/events/${encodeURIComponent(d.event_id)}`), "data-key": "event" }, visible(d.event_id))],
    ["Aggregate", d.aggregate_id && h("span", { class: "mono" }, visible(d.aggregate_id))], ["Record", h("span", { class: "mono" }, `${visible(d.topic)}[${d.partition}]@${d.offset}`)],
    ["Other rules", d.event_id && h("a", { href: href("/reactions", { event_id: d.event_id }), "data-key": "others" }, "deliveries of this event")],
  ]));
}

function payload({ event, payload_text: text }) {
  if (!event) return null;
  const lines = text !== undefined ? pretty(text) : null, none = text === undefined && event.data_base64 === undefined;
  return panel("Payload", { aside: h("div", { class: "row" }, h("span", { class: "small muted" }, visible(event.content_type || "no content type")), !none && copyButton(text !== undefined ? prettyText(text) ?? text : event.data_base64, "payload")) },
    none ? h("p", { class: "muted" }, "It has no payload.") : h("pre", { class: "code payload", tabindex: "0", "aria-label": "Payload" }, lines ? prettyView(lines) : visible(text ?? event.data_base64)));
}

function headers(e) {
  const all = Object.entries(e?.headers ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return all.length > 0 && panel("Headers", {}, h("table", { class: "pairs" }, h("caption", { class: "hidden-text" }, "Headers"), h("tbody", null, all.map(([k, v]) => h("tr", null, h("th", { scope: "row", class: "mono" }, visible(k)), h("td", { class: "mono break" }, visible(v)))))));
}
