// Many scheduled messages, by a filter: the preview of delivering them now or cancelling them,
// and the request. The results are what ask() takes.
import { api } from "./api.js";
import { h } from "./dom.js";
import { ago, plural, stamp, visible } from "./format.js";
import { facts, tally } from "./parts.js";
import { serverTime } from "./time.js";

const kinds = {
  "deliver-now": {
    title: "Deliver messages now", word: "Deliver now", done: "made due", none: "No scheduled message that is not due yet matches.",
    says: ["They are published immediately, at the rate of the relay, instead of at their times. ", "A published message cannot be recalled."],
  },
  cancel: {
    title: "Cancel messages", word: "Cancel them", danger: true, done: "cancelled", none: "No scheduled message matches.",
    says: ["They are never published. ", "This cannot be undone; their payloads are removed immediately."],
  },
};

// changeMany delivers (deliver-now) or cancels (cancel) the messages of a filter. Messages
// accepted after it was opened are not included.
export function changeMany(kind, chosen, done) {
  const k = kinds[kind], rate = h("input", { type: "number", min: 0.1, step: "any", placeholder: "no limit", "data-key": "rate" });
  const filter = Object.fromEntries(Object.entries({ created_until: new Date(serverTime()).toISOString(), ...chosen }).filter(([, v]) => v));
  let changed = 0, gone = 0, from; // of attempts that broke off, too
  return {
    title: k.title, word: k.word, danger: k.danger, done,
    get said() { return `${plural(changed, "message")} ${k.done}${gone ? `; ${plural(gone, "message")} had been published before` : ""}.`; },
    form: h("label", null, "Messages per second, at most", rate),
    look: async () => {
      const all = { messages: 0, by_topic: {}, by_client: {} };
      for (let cursor; ;) {
        const { preview: p, next } = await api.many(kind, { filter, cursor, dry_run: true });
        all.messages += p.messages;
        for (const by of ["by_topic", "by_client"]) for (const [name, n] of Object.entries(p[by])) all[by][name] = (all[by][name] ?? 0) + n;
        all.first ??= p.first_due;
        all.last = p.last_due ?? all.last;
        if (!(cursor = next)) break;
      }
      if (!all.messages) return { ok: false, view: h("p", { class: "callout warn" }, k.none) };
      const name = (s) => visible(s || "(others)");
      return { ok: true, view: [
        h("p", { class: `callout ${k.danger ? "bad" : ""}` }, h("b", null, plural(all.messages, "message"), ". ", k.says[0]), k.says[1]),
        h("div", { class: "preview" }, h("div", null, h("h3", null, "Topic"), tally(all.by_topic, { name })), h("div", null, h("h3", null, "Client"), tally(all.by_client, { name }))),
        facts([["First due", [stamp(all.first), " · ", ago(all.first)]], ["Last due", [stamp(all.last), " · ", ago(all.last)]]])] };
    },
    // One request has a limit; the next one resumes at the cursor.
    make: async (reason) => {
      const limit = Number(rate.value) > 0 ? { rate: Number(rate.value) } : {};
      for (;;) {
        const { result, next } = await api.many(kind, { filter, cursor: from, ...limit }, reason);
        changed += result.changed;
        gone += result.gone;
        if (!(from = next)) return;
      }
    },
  };
}
