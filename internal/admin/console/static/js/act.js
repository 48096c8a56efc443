// Every change uses this dialog: preview, reason, confirmation.
import { h, fill } from "./dom.js";
import { api } from "./api.js";
import { dialog, toast } from "./dialog.js";
import { count, plural, span } from "./format.js";
import { loading, sentence, tally } from "./parts.js";
import { may } from "./session.js";
import { serverTime } from "./time.js";
import { actions } from "./words.js";

// act previews an action and makes it once it is confirmed with a reason.
// target is {id, etag} for one dead letter; {ids}, {filter}, {object} of the archive, or
// {} for a sweep, which is a job.
// done is called after the API accepted the action.
export function act(action, target, done) {
  const a = actions[action], one = Boolean(target.id);
  const body = h("div", { class: "stack" }, loading("the preview"));
  let preview = null, busy = false;

  const reason = h("input", { type: "text", maxlength: 500, autocomplete: "off", required: true, placeholder: "ticket, cause, fix", oninput: update, "data-key": "reason", autofocus: true });
  const typed = h("input", { type: "text", inputmode: "numeric", autocomplete: "off", oninput: update, "data-key": "typed" });
  const topic = h("input", { type: "text", maxlength: 249, autocomplete: "off", required: true, oninput: update, "data-key": "topic" });
  const rate = h("input", { type: "number", min: 0, step: "any", placeholder: "no limit", onchange: estimate, "data-key": "rate" });
  const takes = h("p", { class: "small muted", role: "status" });
  const canary = h("input", { type: "checkbox", checked: action === "replay" });
  const trouble = h("p", { class: "danger-text", role: "alert" });
  const yes = h("button", { type: "submit", class: `button primary ${a.danger ? "danger" : ""}`, disabled: true, "data-key": "yes" }, a.title);
  const box = dialog({
    title: one ? `${a.title} this dead letter` : `${a.title} dead letters`, content: body,
    buttons: [h("span", { class: "grow small muted" }, "Recorded in the audit trail with your name."), h("button", { type: "button", class: "button", onclick: () => box.close() }, "Cancel"), yes],
  });
  box.el.querySelector("form").addEventListener("submit", confirm);

  const force = h("input", { type: "checkbox", "data-key": "force", onchange: look });
  const option = action === "purge" && h("label", { class: "check" }, force, " Include failed and suspended dead letters, whose events are in no topic; the events blocked behind them proceed");
  // Dead letters written after the preview are not included.
  const deadLetters = one ? { ids: [target.id] } : target.filter ? { filter: { ...target.filter, until: before(target.filter.until) } } : target;
  // The preview does not depend on the topic of a redirect.
  const wanted = () => ({ action, ...deadLetters, ...(a.topic ? { topic: topic.value.trim() || "not-chosen-yet" } : {}), ...(force.checked ? { force: true } : {}) });
  look();

  async function look() {
    try {
      preview = await api.preview(wanted());
    } catch (err) {
      return fill(body, h("p", { class: "danger-text", role: "alert" }, `The preview failed: ${sentence(err.message)}`), h("p", { class: "muted" }, "Nothing was changed. The action needs a preview."),
        h("div", null, h("button", { type: "button", class: "button", onclick: () => { fill(body, loading("the preview")); look(); } }, "Try again")));
    }
    fill(body, previewView(preview, a, one), option, form());
    update();
    reason.focus();
  }

  function form() {
    if (!something()) return null;
    return [
      a.topic && h("label", null, "Topic to publish to", topic),
      h("label", null, "Reason", reason),
      !one && action !== "archive" && h("details", null, h("summary", null, "Rate"), h("div", { class: "row top" },
        h("label", { class: "grow" }, "Dead letters per second, at most", rate, takes),
        action === "replay" && h("label", { class: "check grow" }, canary, " Canary: 1, 2, 5, 20 … and stop if the same error comes back"))),
      guarded() && h("label", null, `Type ${preview.dead_letters} to confirm`, typed),
      trouble,
    ];
  }

  function estimate() {
    const at = Number(rate.value);
    fill(takes, at > 0 ? `takes about ${span(Math.max(1000, (preview.dead_letters / at) * 1000))}` : "");
  }

  // A sweep may only remove expired objects.
  function something() { return preview?.dead_letters > 0 || preview?.objects_expired > 0; }

  function guarded() { return a.danger && preview.dead_letters > 1; }

  function update() {
    yes.textContent = preview?.dead_letters > 1 || !one ? `${a.title} ${count(preview?.dead_letters ?? 0)}` : a.title;
    yes.disabled = busy || !something() || !reason.value.trim() || (a.topic && !topic.value.trim()) || (guarded() && typed.value.replace(/\D/g, "") !== String(preview.dead_letters));
  }

  async function confirm(e) {
    e.preventDefault();
    if (yes.disabled) return;
    busy = true; update(); fill(trouble);
    const why = reason.value.trim();
    try {
      if (one && !a.job) {
        await api.act(target.id, action, {}, a.exact && target.etag, why);
        toast(a.done);
        box.close();
        done?.();
      } else {
        const job = await api.startJob({ ...wanted(), ...(Number(rate.value) > 0 ? { rate: Number(rate.value) } : {}), ...(action === "replay" ? { canary: canary.checked } : {}) }, why);
        toast(`Job started: ${a.title.toLowerCase()} ${plural(preview.dead_letters, "dead letter")}.`);
        box.close();
        done?.(job);
      }
    } catch (err) {
      fill(trouble, sentence(err.message), ...err.errors.map((x) => [h("br"), [x.location, x.message].filter(Boolean).join(": ")]));
    }
    busy = false; update();
  }
}

// before is until, or now if that is earlier.
const before = (until) => (until && new Date(until) < serverTime() ? until : new Date(serverTime()).toISOString());

// previewView shows the effect of an action.
function previewView(p, a, one) {
  const refused = Object.entries(p.refused ?? {}).filter(([, n]) => n > 0), none = !p.dead_letters;
  const many = (map) => Object.keys(map ?? {}).length > 1 || !one;
  return [
    none
      ? p.objects_expired > 0 || h("p", { class: "callout warn" }, one ? "The status of this dead letter does not allow this action." : "No dead letter has a status that allows this action.")
      : h("p", { class: `callout ${a.danger ? "bad" : ""}` }, h("b", null, plural(p.dead_letters, "dead letter")), p.aggregates > 0 ? ` of ${plural(p.aggregates, "aggregate")}. ` : ". ", one ? a.one : a.many),
    !none && h("div", { class: "preview" },
      many(p.by_status) && h("div", null, h("h3", null, "Status"), tally(p.by_status)),
      p.action !== "archive" && h("div", null, h("h3", null, "Error"), tally(p.by_error_class, { name: (k) => k || "(none)" })),
      p.action !== "archive" && h("div", null, h("h3", null, "Topic"), tally(p.by_topic, { name: (k) => k || "(not known)" })),
      h("div", null, h("h3", null, "Blocked events"), h("p", null, p.followers ? `${plural(p.followers, "event")}, which then proceed` : "nothing", p.followers && p.followers_of_aggregates < p.aggregates ? h("span", { class: "muted" }, ` (of ${count(p.followers_of_aggregates)} aggregates)`) : null))),
    refused.length > 0 && h("p", { class: "muted" }, `Skipped, because their status does not allow it: ${refused.map(([s, n]) => `${count(n)} ${s}`).join(", ")}.`),
    p.objects_expired > 0 && h("p", { class: "callout warn" }, `${plural(p.objects_expired, "object")} of the archive ${p.objects_expired === 1 ? "has" : "have"} expired and will be removed.`),
    p.truncated && h("p", { class: "warn-text" }, `There are more: the preview examined ${count(p.looked_at)}; the action applies to all that match.`),
    p.missing > 0 && h("p", { class: "muted" }, `${plural(p.missing, "dead letter")} no longer exist.`),
  ];
}

// possible are the actions that the role may do on dead letters of these statuses.
export const possible = (all) => Object.keys(actions).filter((name) => may(name) && all.some((s) => actions[name].from.includes(s)));

// buttons are those for what the role may do; all of them, or null.
export function buttons(names, run, primary = "replay") {
  return names.map((name) => h("button", {
    type: "button", class: `button ${actions[name].danger ? "danger" : ""} ${name === primary ? "primary" : ""}`, "data-key": `act-${name}`, onclick: () => run(name),
  }, actions[name].title));
}
