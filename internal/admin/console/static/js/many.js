// Many messages that wait, by a filter: what releasing them or taking them back would
// do, and doing it. The results are what ask() takes.
import { api } from "./api.js";
import { h } from "./dom.js";
import { ago, plural, utc, visible } from "./format.js";
import { facts, tally } from "./parts.js";

const kinds = {
  release: {
    title: "Release messages now", word: "Release", done: "released", none: "No message that waits and is not due yet is like this.",
    says: ["They go out as fast as the relay's rate lets them, not at their times. ", "What is published cannot be called back."],
  },
  cancel: {
    title: "Take messages back", word: "Take them back", danger: true, done: "taken back", none: "No message that waits is like this.",
    says: ["They are never published. ", "This cannot be undone; their payloads are removed at once."],
  },
};

// changeMany releases (release) or takes back (cancel) what a filter means. What is
// handed in after it was opened is not meant.
export function changeMany(kind, chosen, done) {
  const k = kinds[kind], rate = h("input", { type: "number", min: 0.1, step: "any", placeholder: "no limit", "data-key": "rate" });
  const filter = Object.fromEntries(Object.entries({ created_until: new Date().toISOString(), ...chosen }).filter(([, v]) => v));
  let changed = 0, gone = 0, from; // of attempts that broke off, too
  return {
    title: k.title, word: k.word, danger: k.danger, done,
    get said() { return `${plural(changed, "message")} ${k.done}${gone ? `; ${plural(gone, "message")} had gone before` : ""}.`; },
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
        h("div", { class: "preview" }, h("div", null, h("h3", null, "Topic"), tally(all.by_topic, { name })), h("div", null, h("h3", null, "Handed in by"), tally(all.by_client, { name }))),
        facts([["First due", [utc(all.first), " · ", ago(all.first)]], ["Last due", [utc(all.last), " · ", ago(all.last)]]])] };
    },
    // One request takes so many; the cursor says where the next one goes on.
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
