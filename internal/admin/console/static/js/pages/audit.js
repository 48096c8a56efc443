// Who changed what, and why; newest first.
import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { short, stamp, visible } from "../format.js";
import { listing } from "../listing.js";
import { empty, loading } from "../parts.js";
import { href } from "../router.js";
import { sorter } from "../sort.js";

const states = {
  done: "The change was made.", refused: "The change was not made.", unknown: "The result is unknown, because the database did not answer: check the dead letter.",
  intended: "The result was not recorded; the process may have crashed: check the dead letter.",
};

// kinds are the kinds of changes: the label and the actions.
const kinds = {
  "dead-letters": ["Dead letters, one at a time", "replay,discard,unblock,suspend,resolve,reopen,edit,set"],
  jobs: ["Jobs, for many dead letters", "create-job,pause-job,resume-job,cancel-job"],
  orders: ["Orders", "confirm-order,ship-order,cancel-order"],
  message: ["Scheduled messages, one at a time", "deliver-message-now,cancel-message"],
  messages: ["Scheduled messages, many at once", "deliver-messages-now,cancel-messages"],
  subscriptions: ["Subscriptions", "put-subscription,delete-subscription,pause-subscription,resume-subscription,seek-subscription,redeliver-subscription,purge-subscription,end-lease,reject-lease,acknowledge-skips"],
  relays: ["Relays and verification", "reshard-relay,request-backfill,repair-events"],
};

const places = { job: "jobs", order: "orders", message: "scheduled", subscription: "subscriptions", lease: "subscriptions", skips: "subscriptions" };
const ofRelay = new Set(["relay", "backfill", "events"]); // their target is a relay
// place is the page of the target and its name there; relays are on the overview.
const place = (e) => {
  const what = /[a-z]+$/.exec(e.action.replace(/-now$/, ""))?.[0];
  return ofRelay.has(what) ? ["/", visible(e.target)] : [`/${places[what] ?? "dead-letters"}/${e.target}`, short(e.target)];
};

const columns = [["When", (e) => Date.parse(e.at)], ["Who", (e) => e.actor], ["What", (e) => e.action], ["On", (e) => e.target], ["Result", (e) => e.state]];

export function audit(ctx) {
  ctx.title("Audit");
  const all = listing("/audit", ["what", "actor"], "changes"), { q } = all;
  const body = h("div", null, loading("the audit")), order = sorter(() => draw());
  fill(ctx.el, h("div", { class: "stack" }, h("header", null, h("h1", { tabindex: "-1" }, "Audit"), h("p", { class: "muted" }, "Every change by an operator, through the console, the APIs and the CLI: who, what, why, and the result.")),
    all.form("Filter changes", "what", all.choice("what", "What", Object.entries(kinds).map(([v, [says]]) => h("option", { value: v }, says))), all.text("actor", "Who", { maxlength: 300, placeholder: "the full name" })), body));
  let page = null;
  const read = ctx.reader(async () => {
    page = await api.audit({ limit: 50, cursor: q.cursor, actor: q.actor, action: kinds[q.what]?.[1] }, ctx.signal);
    draw();
  }, body);
  const draw = () => {
    const entries = page.entries;
    fill(body, entries.length || page.next || q.cursor ? [h("div", { class: "scroll", role: "region", "aria-label": "Audit", tabindex: "0" }, h("table", { class: "cards" }, h("caption", { class: "hidden-text" }, "Audit, newest first"),
      h("thead", null, h("tr", null, order.head(columns))),
      h("tbody", null, order.rows(entries, columns).map((e) => h("tr", null,
        h("td", { "data-label": "When", class: "nowrap" }, stamp(e.at)),
        h("td", { "data-label": "Who" }, h("span", { class: "break" }, visible(e.actor)), e.role && h("span", { class: "muted" }, ` (${e.role})`)),
        h("td", { "data-label": "What", class: "break" }, visible(e.summary)),
        h("td", { "data-label": "On" }, on(e)),
        h("td", { "data-label": "Result", class: "break" }, h("span", { class: e.state === "done" ? null : e.state === "refused" ? "warn-text" : "danger-text", title: states[e.state] }, e.state), e.outcome && h("span", { class: "muted" }, ` ${visible(e.outcome)}`)))))))
      , all.pager(page, entries.length, ["change"], "newest first")]
      : all.filtered ? empty("No change matches.", "The audit trail of the last 30 days was searched.")
      : empty("Nothing was changed yet.", "Replays, discards, edits and other changes are listed here, with the user and the reason.", h("a", { class: "button", href: href("/dead-letters") }, "Show dead letters")));
  };
  const on = (e) => {
    if (!e.target) return h("span", { class: "muted" }, "–");
    const [path, name] = place(e);
    return h("a", { class: "mono", href: href(path), title: e.target, "data-key": `a-${e.id}` }, name);
  };
  ctx.soon(["dead_letters", "job"], read, 1500);
  read();
}
