// One scheduled message: its content, its state, its history; delivering it ahead
// of its time, or cancelling it.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { first, headers, payload } from "../content.js";
import { fill, h } from "../dom.js";
import { ago, short, stamp, visible } from "../format.js";
import * as keys from "../keys.js";
import { copyButton, facts, loading, mark, panel, sentence } from "../parts.js";
import { href } from "../router.js";
import { may } from "../session.js";
import { serverTime } from "../time.js";
import { messageStates } from "../words.js";
import { subscribed } from "./event.js";

export function message(ctx) {
  const id = ctx.params.id;
  ctx.title(`Message ${short(id)}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Message"), loading("the message"));
  const state = { view: "" };
  let m = null, content = null;

  const read = ctx.reader(async () => {
    const now = await api.message(id, ctx.signal);
    if (JSON.stringify(now) === JSON.stringify(m)) return;
    m = now;
    if (m.state === "cancelled") content = { removed: true };
    else if (!content || content.err) carried(); // it never changes
    draw();
  }, (why) => fill(ctx.el, h("h1", { tabindex: "-1" }, "Message"), why), (err) => err.status === 404 && fill(ctx.el, h("h1", { tabindex: "-1" }, "No such message"), h("div", { class: "empty" }, h("p", { class: "empty-title" }, "There is no message with this id."), h("p", { class: "muted" }, "Retention may have removed it: by default delivered messages are kept for a week, cancelled ones for 30 days."), h("div", { class: "row" }, h("a", { class: "button", href: href("/scheduled") }, "What waits")))));

  const carried = async () => {
    try {
      const now = await api.messageContent(id, ctx.signal);
      content = now;
      state.view ||= first(now);
    } catch (err) {
      if (ctx.signal.aborted) return;
      content = { err };
    }
    draw();
  };

  // look is the preview of a change of the message as it is now.
  const look = (says) => async () => {
    const now = await api.message(id);
    return now.state === "scheduled"
      ? { ok: true, view: [says, facts([["Topic", visible(now.topic)], ["Key", now.key && visible(now.key)], ["Due", [stamp(now.deliver_at), " · ", ago(now.deliver_at)]]])] }
      : { ok: false, view: h("p", { class: "callout warn" }, h("b", null, "It is too late. "), `The message is ${now.state}: ${messageStates[now.state]?.[1] ?? ""}`) };
  };
  const deliverNow = () => ask({
    title: "Deliver this message now", word: "Deliver it", said: "It is due immediately.", done: read,
    look: look(h("p", { class: "callout" }, h("b", null, "It is published immediately instead of at its time. "), "A published message cannot be recalled.")),
    make: (reason) => api.deliverMessageNow(id, reason),
  });
  const takeBack = () => ask({
    title: "Cancel this message", word: "Cancel it", danger: true, said: "Cancelled: it is never published.", done: read,
    look: look(h("p", { class: "callout bad" }, h("b", null, "It is never published. "), "This cannot be undone; its payload is removed immediately.")),
    make: (reason) => api.takeBack(id, reason),
  });
  const due = () => Date.parse(m.deliver_at) <= serverTime();

  function draw() {
    const waits = m.state === "scheduled";
    fill(ctx.el, h("div", { class: "stack" },
      h("header", { class: "detail-head" },
        h("p", { class: "crumbs small" }, h("a", { href: href("/scheduled"), "data-key": "crumb" }, "Scheduled"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "message id")),
        h("div", { class: "row between" },
          h("div", { class: "row title" }, h("h1", { tabindex: "-1", class: "break" }, visible(m.topic)), mark(messageStates, m.state), h("span", { class: "muted" }, messageStates[m.state]?.[1])),
          h("div", { class: "row actions" },
            waits && !due() && may("deliver-message-now") && h("button", { type: "button", class: "button primary", "data-key": "act-deliver-message-now", onclick: deliverNow }, "Deliver now"),
            waits && may("take-back") && h("button", { type: "button", class: "button danger", "data-key": "act-take-back", onclick: takeBack }, "Cancel message"),
            waits && !may("take-back") && h("span", { class: "muted small" }, "Your role is read-only.")))),
      h("div", { class: "detail" },
        h("div", { class: "stack" }, carries()),
        h("div", { class: "stack" },
          panel("Message", {}, facts([
            ["Topic", visible(m.topic)], ["Key", m.key ? h("span", { class: "mono" }, visible(m.key)) : h("span", { class: "muted" }, "its id")],
            ["Accepted", [stamp(m.created_at), " · ", ago(m.created_at)]], ["Due", m.deliver_at && [stamp(m.deliver_at), " · ", ago(m.deliver_at)]],
            ["Record", m.record && h("span", { class: "mono" }, `${m.record.topic}[${m.record.partition}]@${m.record.offset}`)],
            ["Event", !["scheduled", "cancelled", "processing"].includes(m.state) && h("a", { href: href(`/events/${id}`), "data-key": "life" }, "history")],
          ])),
          subscribed(m.subscriptions),
          panel("History", {}, h("ol", { class: "timeline" }, m.history.map((s) => h("li", { class: `t-${messageStates[s.state]?.[0] ?? "archived"}` },
            h("p", null, h("b", null, s.state.replaceAll("_", " "))), h("p", { class: "small muted" }, stamp(s.at)), s.detail && h("p", { class: "small break" }, visible(s.detail))))),
            m.note && h("p", { class: "gap small muted" }, visible(m.note)))))));
  }

  function carries() {
    if (!content) return panel("Payload", {}, loading("what it carries"));
    if (content.removed) return panel("Payload", {}, h("p", { class: "muted" }, "It was removed when the message was cancelled."));
    if (content.err) return panel("Payload", {}, h("p", { class: "warn-text" }, `It cannot be shown: ${sentence(content.err.message)}`));
    return [payload(content, state, draw), headers(content.headers, state, draw)];
  }

  if (may("deliver-message-now")) keys.onPage("r", "deliver now", () => ctx.el.querySelector('[data-key="act-deliver-message-now"]')?.click());
  ctx.every(2500, read);
  read();
}
