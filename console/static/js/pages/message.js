// One message that was handed in: where it stands, how it came there, and back.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, short, utc, visible } from "../format.js";
import { copyButton, facts, failed, loading, mark, panel } from "../parts.js";
import { href } from "../router.js";
import { may } from "../session.js";
import { messageStates } from "../words.js";

export function message(ctx) {
  const id = ctx.params.id;
  ctx.title(`Message ${short(id)}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Message"), loading("the message"));
  let m = null;

  const read = async () => {
    try {
      const now = await api.message(id, ctx.signal);
      if (JSON.stringify(now) === JSON.stringify(m)) return;
      m = now;
      draw();
    } catch (err) {
      if (ctx.signal.aborted) return;
      if (err.status === 404) fill(ctx.el, h("h1", { tabindex: "-1" }, "No such message"), h("div", { class: "empty" }, h("p", { class: "empty-title" }, "There is no message with this id."), h("p", { class: "muted" }, "It may be too long ago: what was delivered is known for a week unless told otherwise, what was taken back for 30 days."), h("div", { class: "row" }, h("a", { class: "button", href: href("/scheduled") }, "What waits"))));
      else if (!m) fill(ctx.el, h("h1", { tabindex: "-1" }, "Message"), failed(err, read));
    }
  };

  const takeBack = () => ask({
    title: "Take this message back", word: "Take it back", danger: true, said: "Taken back: it is never published.", done: read,
    look: async () => {
      const now = await api.message(id);
      return now.state === "scheduled"
        ? { ok: true, view: [h("p", { class: "callout bad" }, h("b", null, "It is never published. "), "This cannot be undone; its payload is removed at once."), facts([["Topic", visible(now.topic)], ["Key", now.key && visible(now.key)], ["Due", [utc(now.deliver_at), " · ", ago(now.deliver_at)]]])] }
        : { ok: false, view: h("p", { class: "callout warn" }, h("b", null, "It is too late. "), `The message is ${now.state}: ${messageStates[now.state]?.[1] ?? ""}`) };
    },
    make: (reason) => api.takeBack(id, reason),
  });

  function draw() {
    const waits = m.state === "scheduled";
    fill(ctx.el, h("div", { class: "stack" },
      h("header", { class: "letter-head" },
        h("p", { class: "crumbs small" }, h("a", { href: href("/scheduled"), "data-key": "crumb" }, "Scheduled"), " / ", h("span", { class: "mono break" }, id), copyButton(id, "message id")),
        h("div", { class: "row between" },
          h("div", { class: "row title" }, h("h1", { tabindex: "-1", class: "break" }, visible(m.topic)), mark(messageStates, m.state), h("span", { class: "muted" }, messageStates[m.state]?.[1])),
          h("div", { class: "row actions" },
            waits && may("take-back") && h("button", { type: "button", class: "button danger", "data-key": "act-take-back", onclick: takeBack }, "Take back"),
            waits && !may("take-back") && h("span", { class: "muted small" }, "Your role may look, and change nothing.")))),
      h("div", { class: "letter" },
        panel("History", {}, h("ol", { class: "timeline" }, m.history.map((s) => h("li", { class: `t-${messageStates[s.state]?.[0] ?? "archived"}` },
          h("p", null, h("b", null, s.state.replaceAll("_", " "))), h("p", { class: "small muted" }, utc(s.at)), s.detail && h("p", { class: "small break" }, visible(s.detail))))),
          m.note && h("p", { class: "gap small muted" }, visible(m.note))),
        panel("Message", {}, facts([
          ["Topic", visible(m.topic)], ["Key", m.key ? h("span", { class: "mono" }, visible(m.key)) : h("span", { class: "muted" }, "its id")],
          ["Handed in", [utc(m.created_at), " · ", ago(m.created_at)]], ["Due", m.deliver_at && [utc(m.deliver_at), " · ", ago(m.deliver_at)]],
          ["Record", m.record && h("span", { class: "mono" }, `${m.record.topic}[${m.record.partition}]@${m.record.offset}`)],
          ["Event", !["scheduled", "cancelled", "processing"].includes(m.state) && h("a", { href: href(`/events/${id}`), "data-key": "life" }, "what became of it")],
        ])))));
  }

  ctx.every(2500, read);
  read();
}
