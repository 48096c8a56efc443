// The topics whose records can be read, with their offsets.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { count, visible } from "../format.js";
import { empty, loading } from "../parts.js";
import { href } from "../router.js";

export function topics(ctx) {
  ctx.title("Topics");
  const body = h("div", null, loading("the topics"));
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Topics"), h("p", { class: "muted" }, "The topics that watch.topics allows, with all records, also uncommitted ones.")), body));
  const open = new Set();
  let drawn = "";

  const read = ctx.reader(async () => {
    const all = (await api.topics(ctx.signal)).topics, now = JSON.stringify(all);
    if (now === drawn) return;
    drawn = now;
    fill(body, all.length ? table(all, open) : empty("There are no topics.", "The topics of the relay, or those of the setting watch.topics, are listed here once they exist."));
  }, body);

  ctx.every(5000, read);
  read();
}

// table lists the topics; open are the names of those whose offsets are shown.
const table = (all, open) => h("div", { class: "scroll", role: "region", "aria-label": "Topics", tabindex: "0" }, h("table", { class: "cards" },
  h("caption", { class: "hidden-text" }, "Topics, by name"),
  h("thead", null, h("tr", null, ["Topic", "Partitions", "Records", "Offsets"].map((t, i) => h("th", { scope: "col", class: i === 1 || i === 2 ? "num" : null }, t)))),
  h("tbody", null, all.map((t) => h("tr", { "data-id": t.name },
    h("td", { "data-label": "Topic" }, h("a", { href: href(`/topics/${encodeURIComponent(t.name)}`), "data-key": `row-${t.name}` }, visible(t.name))),
    h("td", { "data-label": "Partitions", class: "num" }, count(t.partitions.length)),
    h("td", { "data-label": "Records", class: "num" }, count(t.records)),
    h("td", { "data-label": "Offsets" }, h("details", { open: open.has(t.name), ontoggle: (e) => (e.target.open ? open.add(t.name) : open.delete(t.name)) }, h("summary", { "data-key": `offsets-${t.name}` }, "By partition"),
      h("ul", { class: "plain small" }, t.partitions.map((p) => h("li", null, `${p.partition}: `, p.error ? h("span", { class: "danger-text" }, visible(p.error)) : h("span", { class: "mono" }, `${count(p.first)} to ${count(p.end)}`)))))))))));
