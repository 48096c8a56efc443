// Groups of equal failures: one cause, one decision.
import { act, buttons, possible } from "../act.js";
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, visible } from "../format.js";
import { badge, empty, loading } from "../parts.js";
import { go, href } from "../router.js";
import { classMeans, open } from "../words.js";

export function groups(ctx) {
  ctx.title("Groups");
  const body = h("div", { class: "stack" }, loading("groups"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Groups"), h("p", { class: "muted" }, "Open dead letters with the same error class and event type, with the events that wait behind them. One fix usually applies to the whole group.")), body));
  let all = null, answer = null;
  const read = ctx.reader(async () => {
    answer = await api.groups(ctx.signal);
    all = together(answer.groups);
    draw();
  }, body);
  const draw = () => fill(body, all.length ? [
    answer.sampled && h("p", { class: "callout warn" }, `These groups contain ${count(answer.looked_at)} dead letters; others exist. An action applies to all that match; its preview counts them.`),
    h("ul", { class: "groups" }, all.map(group)),
    answer.groups_left_out > 0 && h("p", { class: "muted" }, `${plural(answer.groups_left_out, "smaller group")} omitted.`),
  ] : empty("There are no groups, because no dead letter is open.", "Dead letters with the same cause form a group, which you can replay or discard as a whole.", h("a", { class: "button", href: href("/") }, "To the overview")));

  function group(g) {
    const which = { error_class: g.error_class, event_type: g.event_type }, q = { status: "open", ...which };
    const [why, help] = classMeans(g.error_class);
    const names = possible(open.filter((s) => g.by_status[s] > 0));
    const filter = { status: open, ...which };
    const name = `${g.error_class || "(none)"}, ${g.event_type}`, key = `${g.error_class}/${g.event_type}`;
    return h("li", { class: "panel group" },
      h("div", { class: "group-count" }, h("b", null, count(g.count)), h("span", { class: "muted small" }, g.count === 1 ? "dead letter" : "dead letters"), g.blocks > 0 && h("span", { class: "small" }, `blocks ${count(g.blocks)}`)),
      h("div", { class: "grow stack tight" },
        h("h2", { class: "break" }, h("a", { href: href("/dead-letters", q), "data-key": `g-${key}` }, g.error_class || "(none)"), g.event_type && h("span", { class: "muted" }, ` · ${g.event_type}`)),
        h("p", null, why, " ", h("span", { class: "muted" }, help)),
        h("ul", { class: "causes", tabindex: "0", "aria-label": `Errors of the group ${name}` }, g.causes.map((c) => h("li", null, g.causes.length > 1 ? h("b", null, `${count(c.count)} × `) : null, c.error_code && h("span", { class: "code-tag first mono" }, c.error_code), h("span", { class: "mono small break" }, visible(c.error_text) || "(no error text)"), " ", h("a", { class: "small nowrap", href: href(`/dead-letters/${c.sample_event_id}`), "data-key": `s-${c.sample_event_id}` }, "an example")))),
        h("p", { class: "small muted row" },
          Object.entries(g.by_status).filter(([, n]) => n > 0).map(([s, n]) => h("span", null, badge(s), ` ${count(n)}`)),
          h("span", null, "first ", ago(g.first)), h("span", null, "last ", ago(g.last))),
        h("div", { class: "group-actions", role: "group", "aria-label": `Act on all dead letters of ${name}` },
          names.length ? buttons(names, (action) => act(action, { filter }, (job) => (job?.id ? go(`/jobs/${job.id}`) : read())), "") : null,
          h("a", { class: "button quiet", href: href("/dead-letters", q), "data-key": `look-${key}` }, "Show them"))));
  }
  ctx.every(5000, read); // the server groups all dead letters once in five seconds
  read();
}

// together joins the groups that one filter means: of one error class and event
// type. The messages, with their numbers taken out, stay apart within it.
function together(groups) {
  const by = new Map();
  for (const g of groups) {
    const key = JSON.stringify([g.error_class, g.event_type]);
    const t = by.get(key) ?? { error_class: g.error_class, event_type: g.event_type, count: 0, blocks: 0, by_status: {}, first: g.first_failed_at, last: g.last_failed_at, causes: [] };
    by.set(key, t);
    t.count += g.count;
    t.blocks += g.blocks;
    for (const [s, n] of Object.entries(g.by_status)) t.by_status[s] = (t.by_status[s] ?? 0) + n;
    if (new Date(g.first_failed_at) < new Date(t.first)) t.first = g.first_failed_at;
    if (new Date(g.last_failed_at) > new Date(t.last)) t.last = g.last_failed_at;
    const same = t.causes.find((c) => c.error_text === g.error_text && c.error_code === g.error_code);
    if (same) same.count += g.count; else t.causes.push({ ...g });
  }
  return [...by.values()].sort((a, b) => b.count + b.blocks - a.count - a.blocks);
}
