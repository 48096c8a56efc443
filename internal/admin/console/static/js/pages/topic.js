// The records of a topic, newest first, and new ones while it is followed.
import { api } from "../api.js";
import { decoded, first, headers, payload } from "../content.js";
import { fill, h } from "../dom.js";
import { ago, bytes, count, plural, short, stamp, visible } from "../format.js";
import * as keys from "../keys.js";
import { listing } from "../listing.js";
import { copyButton, empty, loading, sentence } from "../parts.js";
import { go, href } from "../router.js";

const pollMs = 1500;
const most = 500; // rows that are kept while the topic is followed

const keyOf = (r) => `${r.partition}-${r.offset}`;
// A record with both forms is decoded by its schema.
const content = (r) => decoded({ payload_text: r.data_text, payload_base64: r.data_base64, content_type: r.content_type }, r.data_base64 === undefined ? undefined : r.data_text);

export function topic(ctx) {
  const name = ctx.params.name, path = `/topics/${encodeURIComponent(name)}`;
  ctx.title(`Topic ${name}`);
  const all = listing(path, ["partition", "at"], "records"), { q } = all;
  const list = h("div", null, loading("the records")), state = h("p", { class: "muted small", role: "status" });
  const button = h("button", { type: "button", class: "button", "data-key": "follow", onclick: toggle }, "Follow");
  fill(ctx.el, h("div", { class: "stack" },
    h("header", null, h("p", { class: "crumbs small" }, h("a", { href: href("/topics"), "data-key": "crumb" }, "Topics"), " / ", h("span", { class: "mono break" }, visible(name)), copyButton(name, "topic name")),
      h("div", { class: "row between" }, h("h1", { tabindex: "-1", class: "break" }, visible(name)), h("div", { class: "row" }, state, button))),
    all.form("Filter records", "partition", all.text("partition", "Partition", { inputmode: "numeric", maxlength: 6 }), all.time("at", "Until (UTC)")), list));

  // page is the records that are shown with the cursors, open the row that is expanded,
  // with the view of its payload.
  let page = null, reading = null, skipped = 0, following = false, open = null;

  const read = ctx.reader(async () => {
    try {
      page = await api.records(name, { limit: 50, partition: q.partition, at: q.at, cursor: q.cursor }, ctx.signal);
    } catch (err) { throw invalid(err); }
    skipped = 0;
    draw();
  }, list, (err) => err.status === 404 && fill(list, missing(err)));

  // more reads the records that arrived since.
  const more = ctx.reader(async () => {
    if (!following || !page || reading) return;
    const shown = reading = page;
    try {
      const now = await api.records(name, { limit: 200, partition: q.partition, after: page.after }, ctx.signal);
      if (!following || page !== shown) return;
      page.after = now.after;
      skipped += now.skipped ?? 0;
      show(skipped ? `Following; ${plural(skipped, "record")} arrived too fast to be shown.` : "Following.");
      if (!now.records.length) return;
      page.records = [...now.records, ...page.records].slice(0, most);
      draw();
    } catch (err) {
      if (!ctx.signal.aborted) show(`Not following: ${sentence(err.message)} Retrying.`);
      throw err;
    } finally { reading = null; }
  }, () => { /* it is shown above the list */ });

  function show(text) { if (state.textContent !== text) state.textContent = text; }

  // set switches the live tail, which the address contains. It needs no new page, so
  // that the focus stays.
  function set(on) {
    following = on;
    button.textContent = on ? "Stop following" : "Follow";
    show(on ? "Following." : "");
  }

  function toggle() {
    if (q.cursor || q.at) return go(href(path, { partition: q.partition, follow: "on" }).slice("/console".length));
    set(!following);
    history.replaceState(null, "", href(path, { partition: q.partition, follow: following ? "on" : "" }));
    return following ? more() : read();
  }

  function draw() {
    const records = page.records;
    if (!records.length && !page.next) {
      return fill(list, all.filtered || q.cursor
        ? empty("No record matches.", "The topic has no record of that time and partition, or retention has removed it.", h("a", { class: "button", href: href(path), "data-key": "all" }, "Show the newest records"))
        : empty("The topic has no records.", "Records appear here when they are published. Follow shows them as they arrive."));
    }
    return fill(list, records.length ? table(records) : h("p", { class: "muted" }, "None so far; the search continues on the next page."),
      following ? h("p", { class: "muted pager" }, `The newest ${plural(records.length, "record")}; stop following for older ones.`) : all.pager(page, records.length, ["record"], "newest first"));
  }

  const table = (records) => h("div", { class: "scroll", role: "region", "aria-label": "Records", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Records, newest first"),
    h("thead", null, h("tr", null, ["Time", "Partition", "Offset", "Key", "Type", "Event", "Payload"].map((t, i) => h("th", { scope: "col", class: i === 1 || i === 2 ? "num" : null }, t)))),
    h("tbody", null, records.map((r) => [row(r), open?.key === keyOf(r) && expanded(r)]))));

  function row(r) {
    const key = keyOf(r), is = open?.key === key, text = r.data_text;
    const expand = () => { open = is ? null : { key, view: first(content(r)) }; draw(); };
    return h("tr", { "data-id": key, class: is ? "picked" : null },
      h("td", { "data-label": "Time", class: "nowrap" }, ago(r.at)),
      h("td", { "data-label": "Partition", class: "num" }, String(r.partition)),
      h("td", { "data-label": "Offset", class: "num" }, count(r.offset)),
      h("td", { "data-label": "Key" }, h("span", { class: "clip mono" }, visible(r.key ?? "–"))),
      h("td", { "data-label": "Type" }, h("span", { class: "clip" }, visible(r.event_type ?? "–"))),
      h("td", { "data-label": "Event" }, r.event_id ? h("a", { class: "mono", href: href(`/events/${encodeURIComponent(r.event_id)}`), title: visible(r.event_id), "data-key": `event-${key}` }, visible(short(r.event_id))) : h("span", { class: "muted" }, "–")),
      h("td", { "data-label": "Payload" }, h("button", { type: "button", class: "link", "aria-expanded": is ? "true" : "false", "data-key": `open-${key}`, onclick: expand }, bytes(r.data_bytes)), " ",
        h("span", { class: "clip mono small muted" }, text === undefined ? "" : visible(text.slice(0, 80)))));
  }

  function expanded(r) {
    return h("tr", null, h("td", { colspan: "7" }, h("div", { class: "stack" },
      h("p", { class: "small muted break" }, h("span", { class: "mono" }, `${visible(r.topic)}[${r.partition}]@${r.offset}`), ` · ${stamp(r.at)}`, r.aggregate_id ? ` · ${visible(r.aggregate_type ?? "aggregate")} ${visible(r.aggregate_id)}` : "", r.sequence ? ` · sequence ${count(r.sequence)}` : ""),
      r.data_truncated && h("p", { class: "callout warn" }, `Only the beginning of the payload is here; all of it has ${bytes(r.data_bytes)}.`),
      payload(content(r), open, draw), headers(r.headers, open, draw))));
  }

  const missing = (err) => empty("There is no such topic here.", sentence(err.message), h("a", { class: "button", href: href("/topics"), "data-key": "all" }, "All topics"));

  keys.onPage("f", "follow the topic, or stop", toggle);
  set(q.follow === "on" && !q.cursor && !q.at);
  ctx.every(pollMs, more);
  read();
}

// invalid names the field that the API refused.
const invalid = (err) => (err.status === 422 && err.errors[0] ? { ...err, status: 422, message: `${err.errors[0].location.replace("query.", "")}: ${err.errors[0].message}` } : err);
