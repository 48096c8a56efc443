// One job: its progress, the results of its dead letters, and its history.
import { api } from "../api.js";
import { dialog, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { ago, count, known, plural, span, stamp, visible } from "../format.js";
import { facts, loading, meter, panel, sentence, tally } from "../parts.js";
import { href } from "../router.js";
import { may } from "../session.js";
import { actions } from "../words.js";
import { filterText, progressBar, reading, share, stateBadge, titleOf } from "./jobs.js";

const offered = { queued: ["pause", "cancel"], running: ["pause", "cancel"], paused: ["resume", "cancel"] };
const says = {
  pause: ["Pause", "It stops until it is resumed. Completed changes are kept."],
  resume: ["Resume", "It continues where it stopped, with the dead letters that it has not replayed yet."],
  cancel: ["Cancel the job", "It stops permanently. Completed changes are kept."],
};

export function job(ctx) {
  const id = ctx.params.id;
  ctx.title("Job");
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Job"), loading("the job"));
  let j = null, timer = 0;
  const read = ctx.reader(async () => {
    clearTimeout(timer);
    j = await api.job(id, ctx.signal);
    draw();
    // The stream reports changes; this covers a broken stream.
    if (!ended(j)) timer = setTimeout(read, 5000);
  }, (why) => fill(ctx.el, h("h1", { tabindex: "-1" }, "Job"), why), (err) => err.status === 404 && fill(ctx.el, h("h1", { tabindex: "-1" }, "No such job"), h("div", { class: "empty" }, h("p", { class: "empty-title" }, "There is no job with this id."), h("p", { class: "muted" }, "The id may be incomplete, or the job has expired."), h("a", { class: "button", href: href("/jobs") }, "All jobs"))));
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  const ended = (x) => ["done", "cancelled", "failed"].includes(x.state) && (x.state !== "cancelled" || known(x.finished_at));

  function draw() {
    const p = j.progress ?? {}, title = titleOf(j), again = Object.values(p.failed_again ?? {}).reduce((a, b) => a + b, 0), skipped = Object.values(p.skipped ?? {}).reduce((a, b) => a + b, 0);
    ctx.title(`${title}: ${j.state}`);
    const began = j.started_at, over = j.finished_at;
    fill(ctx.el, h("div", { class: "stack" },
      h("header", null, h("p", { class: "crumbs small" }, h("a", { href: href("/jobs"), "data-key": "crumb" }, "Jobs"), " / ", h("span", { class: "mono break" }, j.id)),
        h("div", { class: "row between" }, h("div", { class: "row title" }, h("h1", { tabindex: "-1" }, `${title}: ${filterText(j)}`), stateBadge(j.state)),
          h("div", { class: "row actions" }, (offered[j.state] ?? []).filter((a) => may(a) && (a !== "resume" || may(j.action))).map((a) => h("button", { type: "button", class: `button ${a === "cancel" ? "danger" : a === "resume" ? "primary" : ""}`, "data-key": `job-${a}`, onclick: () => change(a) }, says[a][0]))))),
      j.error && h("p", { class: `callout ${j.state === "failed" ? "bad" : "warn"}` }, sentence(j.error)),
      h("div", { class: "detail" },
        h("div", { class: "stack" },
          panel(ended(j) ? "Report" : "Progress", { aside: h("span", { class: "small muted" }, p.total ? `${share(p).toFixed(0)} %` : reading(j) ?? "not started") },
            h("div", { class: "stack" }, progressBar(j), h("p", null, h("b", null, `${count(p.done ?? 0)} of ${count(p.total ?? 0)}`), " dead letters examined, ", h("b", null, count(p.changed ?? 0)), " changed."),
            h("div", { class: "outcomes" }, [
              j.action === "replay" && [j.redelivery ? "Acknowledged" : "Published", p.replayed, "resolved"], j.action === "replay" && ["Failed again", again, "failed"], j.action === "replay" && ["Waiting", p.waiting, "pending"], ["Skipped", skipped, "archived"],
            ].filter(Boolean).map(([name, n, tone]) => h("p", { class: `outcome o-${tone}` }, h("b", null, count(n ?? 0)), h("span", null, name)))),
            j.action === "replay" && meter([{ name: "resolved", value: p.replayed ?? 0 }, { name: "failed", value: again }, { name: "pending", value: p.waiting ?? 0 }, { name: "archived", value: skipped }]),
            again > 0 && h("div", null, h("h3", null, "Failed again with"), tally(p.failed_again, { link: (c) => href("/dead-letters", { status: "open", error_class: c }) })),
            skipped > 0 && h("div", null, h("h3", null, "Reasons for skipping"), tally(p.skipped, { name: (k) => ({ claimed: "claimed by a relay", missing: "no longer exist", "changed concurrently": "changed concurrently", "already in that state": "no change needed", "no copy": "in no readable archive", held: "other events wait behind them" })[k] ?? `${k}: not allowed in this status` }))))),
        h("div", { class: "stack" },
          panel("Job", {}, facts([["Action", title], [j.redelivery ? "Messages" : "Dead letters", filterText(j)], ["Records read", p.reading && count(p.reading.records)], ["By", visible(j.actor)], ["Reason", visible(j.reason)], ["Created", [stamp(j.created_at), " · ", ago(j.created_at)]], ["Started", known(began) && stamp(began)], ["Ended", known(over) && stamp(over)],
            ["Duration", known(began) && known(over) && span(new Date(over) - new Date(began))], ["Rate", j.rate ? `${count(j.rate)} dead letters/s at most` : "unlimited"], ["Batch", j.batch_size && plural(j.batch_size, "dead letter")], ["Force", j.force && "includes failed and suspended dead letters"], ["Archive", j.no_archive && "none: the dead letters are deleted"], ["Order", j.by_priority && "higher priorities first"], ["Set", j.set && [j.set.priority != null && `priority ${j.set.priority}`, ...(j.set.add_tags ?? []).map((t) => `+${t}`), ...(j.set.remove_tags ?? []).map((t) => `-${t}`)].filter(Boolean).join(", ")], ["Canary", j.canary && "1, 2, 5, 20 …; stops if the same error comes back"]])),
          (j.history ?? []).length > 0 && panel("History", {}, h("ol", { class: "timeline" }, j.history.map((c) => h("li", null, h("p", null, h("b", null, sentence(c.what).replace(/\.$/, ""))), h("p", { class: "small muted" }, stamp(c.at), c.by ? ` · ${c.by}` : ""), c.why && h("p", { class: "small break" }, visible(c.why))))))))));
  }

  function change(action) {
    const reason = h("input", { type: "text", maxlength: 500, required: true, autocomplete: "off", autofocus: true, oninput: () => { yes.disabled = !reason.value.trim(); }, "data-key": "reason" });
    const trouble = h("p", { class: "danger-text", role: "alert" });
    const yes = h("button", { type: "submit", class: `button primary ${action === "cancel" ? "danger" : ""}`, disabled: true, "data-key": "yes" }, says[action][0]);
    const p = j.progress ?? {}, canary = action === "resume" && may("replay") ? j.canary_failed ?? [] : [];
    const again = h("input", { type: "checkbox", checked: true, "data-key": "again" });
    const box = dialog({ title: says[action][0], content: h("div", { class: "stack" }, h("p", { class: "callout" }, `${count(p.done ?? 0)} of ${count(p.total ?? 0)} dead letters examined. `, says[action][1]), canary.length > 0 && h("label", { class: "check" }, again, ` Also replay what failed again in the canary, as another job: ${plural(canary.length, "dead letter")}`), h("label", null, "Reason", reason), trouble),
      buttons: [h("span", { class: "grow small muted" }, "Recorded in the audit trail with your name."), h("button", { type: "button", class: "button", onclick: () => box.close() }, "Close"), yes] });
    box.el.querySelector("form").addEventListener("submit", async (e) => {
      e.preventDefault();
      yes.disabled = true;
      try {
        const why = reason.value.trim();
        await api.changeJob(id, action, why);
        box.close();
        toast({ pause: "The job is paused.", resume: "The job is resumed.", cancel: "The job is cancelled." }[action]);
        read();
        if (canary.length && again.checked) await replayAgain(canary, why);
      } catch (err) { fill(trouble, sentence(err.message)); yes.disabled = false; }
    });
  }

  // replayAgain replays dead letters of the canary by another job, because a job changes none twice.
  async function replayAgain(ids, why) {
    try {
      const other = await api.startJob({ action: "replay", ids }, why);
      toast(`Job started: replay ${plural(ids.length, "dead letter")} of the canary.`, { link: href(`/jobs/${other.id}`), label: "Show it" });
    } catch (err) { toast(`The job is resumed, but ${plural(ids.length, "dead letter")} of its canary could not be replayed: ${sentence(err.message)}`, { bad: true }); }
  }

  ctx.on(["job"], (x) => { if (!x?.id || x.id === id) read(); });
  read();
}
