// Repeating deliveries: the preview and the request. The results
// are what ask() takes.
import { api } from "./api.js";
import { h } from "./dom.js";
import { ago, plural, utc, visible } from "./format.js";
import { facts, tally } from "./parts.js";
import { deliveryStates } from "./words.js";

const some = (n) => plural(n, "delivery", "deliveries");
const warning = (rules) => rules?.length > 0 && h("p", { class: "callout warn" }, `No process runs ${rules.map(visible).join(", ")} now: repeats wait until one does.`);

// repeatOne repeats a delivery.
export const repeatOne = (id, done) => ({
  title: "Repeat this delivery", word: "Repeat", said: "Repeat requested.", done,
  look: async () => {
    const d = await api.delivery(id);
    if (d.state === "pending") return { ok: false, view: h("p", { class: "callout warn" }, h("b", null, "It is pending. "), deliveryStates.pending[1]) };
    const p = (await api.repeatMany({ ids: [id], dry_run: true })).preview;
    return { ok: p.deliveries > 0, view: [
      h("p", { class: "callout" }, `${visible(d.plugin || "The plugin")} receives the event again, with the same delivery id. The rule is not evaluated again.`), warning(p.not_running),
      facts([["Rule", visible(d.rule)], ["State", d.state], ["Event", visible(d.event_id)], ["Started", [utc(d.created_at), " · ", ago(d.created_at)]], ["Last error", d.error && visible(d.error)]])] };
  },
  make: (reason) => api.repeat(id, reason),
});

// repeatMany repeats those of {ids} or {filter}. Of a filter, what begins after the
// preview is not included.
export function repeatMany(target, done) {
  const meant = target.filter ? { filter: { until: new Date().toISOString(), ...target.filter } } : target;
  return {
    title: "Repeat deliveries", word: "Repeat", said: "Repeats requested.", done,
    look: async () => {
      const p = (await api.repeatMany({ ...meant, dry_run: true })).preview;
      if (!p.deliveries) return { ok: false, view: h("p", { class: "callout warn" }, p.pending ? `${some(p.pending)} ${p.pending === 1 ? "is" : "are"} pending and retried automatically.` : "No delivery can be repeated.") };
      return { ok: true, view: [
        h("p", { class: "callout" }, h("b", null, some(p.deliveries)), p.next ? ", the newest of those that match; the others are included. " : ". ", "The plugins receive the events again. The rules are not evaluated again."), warning(p.not_running),
        h("div", { class: "preview" },
          h("div", null, h("h3", null, "Rule"), tally(p.by_rule, { name: visible })), h("div", null, h("h3", null, "Leads to"), tally(p.by_plugin, { name: (k) => visible(k || "(not known)") })),
          h("div", null, h("h3", null, "State"), tally(p.by_state)), h("div", null, h("h3", null, "Last error"), Object.keys(p.by_error).length ? tally(p.by_error, { name: visible }) : h("p", null, "none"))),
        p.pending > 0 && h("p", { class: "muted" }, `${some(p.pending)} skipped: ${p.pending === 1 ? "it is" : "they are"} retried automatically.`),
        p.missing > 0 && h("p", { class: "muted" }, `${some(p.missing)} ${p.missing === 1 ? "no longer exists" : "no longer exist"}.`)] };
    },
    // One request has a limit; the next one resumes at the cursor.
    make: async (reason) => {
      for (let cursor; ;) {
        const { preview } = await api.repeatMany({ ...meant, reason, ...(cursor ? { cursor } : {}) });
        if (!(cursor = preview.next)) return;
      }
    },
  };
}
