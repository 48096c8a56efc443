// Groups of equal failures: one cause, one decision, as in ServicePulse.
import { act, buttons, possible } from "../act.js";
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, visible } from "../format.js";
import { badge, empty, failed, loading } from "../parts.js";
import { go, href } from "../router.js";
import { classMeans, open } from "../words.js";

export function groups(ctx) {
  ctx.title("Groups");
  const body = h("div", { class: "stack" }, loading("groups"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Groups"), h("p", { class: "muted" }, "Open letters that died of the same cause. What mends one mends all of its group.")), body));
  let all = null;
  const read = async () => {
    try {
      const answer = await api.groups(ctx.signal);
      all = answer.groups ?? answer;
      draw();
    } catch (err) {
      if (!ctx.signal.aborted && !all) fill(body, failed(err, read));
    }
  };
  const draw = () => fill(body, all.length ? h("ul", { class: "groups" }, all.map(group)) : empty("There is no group, because no letter is open.", "When events die, those with the same cause are one group here, and can be replayed or discarded together.", h("a", { class: "button", href: href("/") }, "To the overview")));

  function group(g) {
    const q = { status: "open", error_class: g.error_class, ...(g.event_type ? { event_type: g.event_type } : {}) };
    const [why, help] = classMeans(g.error_class);
    const counts = g.by_status ?? {};
    const names = possible(Object.keys(counts).length ? open.filter((s) => counts[s] > 0) : open);
    const filter = { status: open, error_class: g.error_class, ...(g.event_type ? { event_type: g.event_type } : {}) };
    const name = `${g.error_class || "(none)"}${g.event_type ? `, ${g.event_type}` : ""}`;
    const key = `${g.error_class}/${g.event_type ?? ""}`;
    return h("li", { class: "panel group" },
      h("div", { class: "group-count" }, h("b", null, count(g.count ?? g.letters)), h("span", { class: "muted small" }, (g.count ?? g.letters) === 1 ? "letter" : "letters")),
      h("div", { class: "grow stack tight" },
        h("h2", { class: "break" }, h("a", { href: href("/letters", q), "data-key": `g-${key}` }, g.error_class || "(none)"), g.event_type && h("span", { class: "muted" }, ` · ${g.event_type}`)),
        h("p", null, why, " ", h("span", { class: "muted" }, help)),
        (g.error_text || g.sample?.error_text) && h("pre", { class: "code error-text short", tabindex: "0", "aria-label": `An error text of the group ${name}` }, visible(g.error_text ?? g.sample.error_text)),
        h("p", { class: "small muted row" },
          Object.entries(counts).filter(([, n]) => n > 0).map(([s, n]) => h("span", null, badge(s), ` ${count(n)}`)),
          g.aggregates !== undefined && h("span", null, plural(g.aggregates, "aggregate")),
          g.oldest && h("span", null, "first ", ago(g.oldest)), g.newest && h("span", null, "last ", ago(g.newest))),
        h("div", { class: "group-actions", role: "group", "aria-label": `Act on all letters of ${name}` },
          names.length ? buttons(names, (action) => act(action, { filter }, (job) => (job?.id ? go(`/jobs/${job.id}`) : read())), "") : null,
          h("a", { class: "button quiet", href: href("/letters", q), "data-key": `look-${key}` }, "Look at them"))));
  }
  ctx.soon(["letters", "stats"], read, 1500);
  read();
}
