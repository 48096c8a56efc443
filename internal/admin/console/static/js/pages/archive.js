// Archived dead letters: the objects of the archive, restoring them, and a sweep.
import { act } from "../act.js";
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, bytes, count, stamp, visible } from "../format.js";
import { empty, loading } from "../parts.js";
import { go, href, query, search } from "../router.js";
import { may } from "../session.js";

export function archive(ctx) {
  ctx.title("Archive");
  const q = query(), body = h("div", null, loading("the archive")), tools = h("div", { class: "row actions" });
  fill(ctx.el, h("div", { class: "stack" },
    h("header", { class: "row between" }, h("div", null, h("h1", { tabindex: "-1" }, "Archive"), h("p", { class: "muted" }, "Dead letters that retention or a purge has moved out of the database. The database keeps an outline of each, so that its event is never published by mistake.")), tools),
    body));
  const started = (job) => { if (job?.id) go(`/jobs/${job.id}`); else read(); };
  let page = null;
  const read = ctx.reader(async () => {
    page = await api.archives({ limit: 50, cursor: q.cursor }, ctx.signal);
    draw();
  }, body);
  const draw = () => {
    fill(tools, page.configured && may("archive") && [
      h("a", { class: "button", href: href("/dead-letters", { status: "resolved" }), "data-key": "settled" }, "Choose dead letters to purge"),
      h("button", { type: "button", class: "button primary", "data-key": "sweep", onclick: () => act("archive", {}, started) }, "Sweep now"),
    ]);
    if (!page.configured) return fill(body, empty("There is no archive.", "This server has no archive.url, so old dead letters are deleted at the end of their retention, except for their outlines, and cannot be purged here."));
    if (!page.objects.length) return fill(body, empty("The archive is empty.", "Resolved and failed dead letters are moved here when their retention ends or when they are purged.", h("a", { class: "button", href: href("/dead-letters", { status: "archived" }) }, "Archived dead letters")));
    return fill(body, h("div", { class: "scroll", role: "region", "aria-label": "Objects of the archive", tabindex: "0" }, h("table", { class: "cards" }, h("caption", { class: "hidden-text" }, "Objects of the archive, oldest first"),
      h("thead", null, h("tr", null, ["Object", "Dead letters", "Size", "Failed from", "Failed until", "Written", "By", "Expires", may("restore") && "Restore"].filter(Boolean).map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", null, page.objects.map((o, i) => h("tr", null,
        h("td", { "data-label": "Object" }, h("span", { class: "mono break", title: `SHA-256 ${o.sha256}` }, visible(o.object))),
        h("td", { "data-label": "Dead letters", class: "nowrap" }, count(o.dead_letters)),
        h("td", { "data-label": "Size", class: "nowrap" }, bytes(o.bytes)),
        h("td", { "data-label": "Failed from", class: "nowrap" }, stamp(o.from)),
        h("td", { "data-label": "Failed until", class: "nowrap" }, stamp(o.to)),
        h("td", { "data-label": "Written", class: "nowrap" }, ago(o.created_at)),
        h("td", { "data-label": "By" }, h("span", { class: "clip" }, visible(o.by))),
        h("td", { "data-label": "Expires", class: "nowrap" }, ago(o.expires_at, "never")),
        may("restore") && h("td", { "data-label": "Restore" }, h("button", { type: "button", class: "button", "data-key": `restore-${i}`, "aria-label": `Restore ${o.object}`, onclick: () => act("restore", { object: o.object }, started) }, "Restore…"))))))),
    h("div", { class: "row between pager" }, h("span", { class: "muted" }, "Oldest first"), h("div", { class: "row" }, q.cursor && h("button", { type: "button", class: "button", onclick: () => go("/archive") }, "Oldest"),
      page.next && h("button", { type: "button", class: "button", "data-key": "next", onclick: () => go(`/archive${search({ cursor: page.next })}`) }, "Newer"))));
  };
  ctx.soon(["job"], read, 1500);
  read();
}
