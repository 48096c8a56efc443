// Bulk operations, newest first.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, count, plural, short, stamp, visible } from "../format.js";
import { listing } from "../listing.js";
import { empty, loading } from "../parts.js";
import { href } from "../router.js";
import { sorter } from "../sort.js";
import { actions, open } from "../words.js";

export const stateBadge = (s) => h("span", { class: `badge b-${{ queued: "archived", running: "processing", paused: "suspended", done: "resolved", cancelled: "archived", failed: "failed" }[s] ?? "archived"}` }, s);

// titleOf is the action of a job: a redelivery is a replay of its own dead letters.
export const titleOf = (j) => (j.redelivery ? "Redeliver" : actions[j.action]?.title ?? j.action);

export const filterText = (j) => {
  if (j.action === "archive") return "older than retention";
  if (j.redelivery) {
    const { subscription, topic, key, filter, since, until } = j.redelivery;
    return [visible(subscription), topic && `topic ${visible(topic)}`, key && `key ${visible(key)}`, filter && visible(filter), since && `written since ${stamp(since)}`, new Date(j.created_at) - new Date(until) > 60_000 && `written before ${stamp(until)}`].filter(Boolean).join(" · ");
  }
  if (j.ids) return `${count(j.ids)} chosen`;
  const f = j.filter ?? {};
  // Every job has an end time: the time of its request unless another is given.
  const ended = f.until && new Date(j.created_at) - new Date(f.until) > 3600_000;
  const all = Array.isArray(f.status) && open.every((s) => f.status.includes(s)) && f.status.length === open.length;
  const parts = [all ? "open" : Array.isArray(f.status) ? f.status.join(", ") : f.status, f.error_class, f.event_type, f.aggregate_id && short(f.aggregate_id), f.table, ...(f.tags ?? []).map((t) => `tag ${t}`), f.text && `contains “${visible(f.text)}”`, f.min_priority != null && `priority ${f.min_priority} or higher`,
    f.since && `failed since ${stamp(f.since)}`, ended && `failed before ${stamp(f.until)}`].filter(Boolean);
  return parts.join(" · ") || "all open";
};

// reading is how far a job has read the topics of its redelivery; undefined for another one.
export const reading = (j) => (j.redelivery && j.state === "running" && !j.progress?.reading ? "reading the topics" : j.progress?.reading && (j.progress.reading.messages ? `${count(j.progress.reading.written)} of ${plural(j.progress.reading.messages, "message")} prepared` : `${plural(j.progress.reading.records, "record")} read`));

export const share = (p) => (p?.total ? Math.min(100, (100 * (p.done ?? 0)) / p.total) : 0);

export const progressBar = (j) => h("progress", { max: 100, value: j.state === "done" ? 100 : share(j.progress), "aria-label": `${titleOf(j)}, ${count(j.progress?.done ?? 0)} of ${count(j.progress?.total ?? 0)}` });

const columns = [["Job", titleOf], ["State", (j) => j.state], ["Dead letters", (j) => j.progress?.total], ["Progress", (j) => share(j.progress)], ["By", (j) => j.actor], ["Reason"], ["Created", (j) => Date.parse(j.created_at)]];

export function jobs(ctx) {
  ctx.title("Jobs");
  const list = listing("/jobs", [], "jobs"), { q } = list, order = sorter(draw);
  const body = h("div", null, loading("jobs"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Jobs"), h("p", { class: "muted" }, "Actions on many dead letters, with their reports. A job resumes by itself after a crash.")), body));
  let all = null, page = null;
  const read = ctx.reader(async () => {
    page = await api.jobs({ cursor: q.cursor, limit: 50 }, ctx.signal);
    all = page.jobs;
    draw();
  }, body);
  function draw() {
    fill(body, all.length || q.cursor
      ? h("div", null, h("div", { class: "scroll", role: "region", "aria-label": "Jobs", tabindex: "0" }, h("table", { class: "cards" }, h("caption", { class: "hidden-text" }, "Jobs, newest first"),
        h("thead", null, h("tr", null, order.head(columns))),
        h("tbody", null, order.rows(all, columns).map((j) => h("tr", null,
          h("td", { "data-label": "Job" }, h("a", { href: href(`/jobs/${j.id}`), "data-key": `j-${j.id}`, title: j.id }, titleOf(j))),
          h("td", { "data-label": "State" }, stateBadge(j.state)),
          h("td", { "data-label": "Dead letters" }, h("span", { class: "clip" }, filterText(j))),
          h("td", { "data-label": "Progress" }, h("span", { class: "job-progress" }, progressBar(j), h("span", { class: "nowrap" }, j.progress?.total ? `${count(j.progress.done)} of ${count(j.progress.total)}` : reading(j) ?? "–"))),
          h("td", { "data-label": "By" }, h("span", { class: "clip" }, j.actor)),
          h("td", { "data-label": "Reason" }, h("span", { class: "clip wide" }, visible(j.reason))),
          h("td", { "data-label": "Created", class: "nowrap" }, ago(j.created_at))))))), list.pager(page, all.length, ["job"], "newest first"))
      : empty("No job was started yet.", "Choose dead letters or a group and act on them. The action is a job with a rate limit, a pause button and a report.", h("a", { class: "button", href: href("/groups") }, "To the groups")));
  }
  ctx.soon(["job"], read);
  read();
}
