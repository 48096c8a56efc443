// Tables of letters.
import { h } from "./dom.js";
import { ago, count, known, short } from "./format.js";
import { badge } from "./parts.js";
import { href } from "./router.js";

// letterTable draws letters; picked, if there is one, is the set of ids chosen.
export function letterTable(letters, { picked, onpick, caption }) {
  const all = picked && letters.length > 0 && letters.every((l) => picked.has(l.event_id));
  const some = picked && letters.some((l) => picked.has(l.event_id));
  return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, caption),
    h("thead", null, h("tr", null,
      picked && h("th", { class: "pick", scope: "col" }, h("input", { type: "checkbox", "aria-label": "Choose all on this page", checked: all, indeterminate: some && !all, "data-key": "pick-all",
        onchange: (e) => { for (const l of letters) e.target.checked ? picked.add(l.event_id) : picked.delete(l.event_id); onpick(); } })),
      ["Event", "Status", "Error", "Type", "Aggregate", "Tries", "Died", "Next try"].map((t) => h("th", { scope: "col", class: t === "Tries" ? "num" : null }, t)))),
    h("tbody", null, letters.map((l) => h("tr", { "data-id": l.event_id, class: picked?.has(l.event_id) ? "picked" : null },
      picked && h("td", { class: "pick" }, h("input", { type: "checkbox", "aria-label": `Choose ${l.event_id}`, checked: picked.has(l.event_id), "data-key": `pick-${l.event_id}`,
        onchange: (e) => { e.target.checked ? picked.add(l.event_id) : picked.delete(l.event_id); onpick(); } })),
      h("td", { "data-label": "Event" }, h("a", { class: "mono", href: href(`/letters/${l.event_id}`), title: l.event_id, "data-key": `row-${l.event_id}` }, short(l.event_id))),
      h("td", { "data-label": "Status" }, badge(l.status, l.released)),
      h("td", { "data-label": "Error" }, h("span", { class: "clip", title: l.error_class }, l.error_class), l.failure_repeats > 1 && h("span", { class: "muted", title: "How often in a row it died of the same error" }, ` ×${count(l.failure_repeats)}`)),
      h("td", { "data-label": "Type" }, h("span", { class: "clip" }, l.event_type)),
      h("td", { "data-label": "Aggregate" }, h("span", { class: "mono", title: l.aggregate_id }, short(l.aggregate_id)), l.sequence ? h("span", { class: "muted" }, ` #${count(l.sequence)}`) : null),
      h("td", { "data-label": "Tries", class: "num" }, count(l.attempts)),
      h("td", { "data-label": "Died", class: "nowrap" }, ago(l.first_failed_at)),
      h("td", { "data-label": "Next try", class: "nowrap", title: l.waits_for }, l.status === "pending" && !known(l.next_attempt) ? "at once" : ago(l.next_attempt)))))));
}
