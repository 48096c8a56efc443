// One subscription: its state, its partitions and processes; pause, resume, seek, redeliver, purge.
import { api } from "../api.js";
import { ask } from "../ask.js";
import { fill, h } from "../dom.js";
import { ago, count, oldest, plural, short, stamp, visible } from "../format.js";
import { copyButton, empty, facts, loading, mark, panel, sentence } from "../parts.js";
import { go, href } from "../router.js";
import { may } from "../session.js";
import { serverTime } from "../time.js";
import { subscriptionStates } from "../words.js";
import { stateOf } from "./subscriptions.js";

// silent reports that a process has ended without saying so: it reports every five seconds.
const silent = (i) => serverTime() - Date.parse(i.at) > 30_000;

// suspended reports that no process calls the destination of push delivery.
const suspended = (processes) => processes.some((i) => i.partitions > 0) && processes.every((i) => !i.partitions || (i.breaker && i.breaker.state !== "closed"));

export function subscription(ctx) {
  const { name } = ctx.params;
  ctx.title(`Subscription ${name}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Subscription"), loading("the subscription"));
  let now = null, leases = null, drawn = "";

  const read = ctx.reader(async () => {
    const state = await api.subscriptionStatus(name, ctx.signal);
    leases = state.leased ? await api.leases(name, ctx.signal) : { leases: [] };
    now = state;
    const text = JSON.stringify({ ...now, leases, instances: now.instances.map((i) => ({ ...i, at: silent(i) || i.at.slice(0, 18) })) }); // drawn every ten seconds: its age is shown
    if (text !== drawn) draw();
    drawn = text;
  }, (why) => fill(ctx.el, h("h1", { tabindex: "-1" }, "Subscription"), why), (err) => err.status === 404 && fill(ctx.el, h("h1", { tabindex: "-1" }, "No such subscription"), empty("There is no subscription with this name.", "It was deleted, or the address is incomplete. Its dead letters are kept.", h("a", { class: "button", href: href("/subscriptions") }, "All subscriptions"), h("a", { class: "button", href: href("/dead-letters", { table: `subscription.${name}` }) }, "Its dead letters"))));

  // status is the view of the state that a change begins with.
  const status = (s, note) => [note, facts([["Not settled", plural(s.lag, "record")], ["In flight", count(s.leased)], ["Waiting for another delivery", count(s.deferred)], ["Oldest", s.oldest && [stamp(s.oldest), " · ", ago(s.oldest)]]])];
  const callout = (bold, text, bad) => h("p", { class: `callout ${bad ? "bad" : ""}` }, h("b", null, bold), " ", text);

  const pause = (paused) => () => ask({
    title: `${paused ? "Pause" : "Resume"} ${name}`, word: paused ? "Pause" : "Resume", said: paused ? "Paused." : "Resumed.", done: read,
    look: async () => {
      const s = await api.subscriptionStatus(name);
      if (Boolean(s.subscription.paused) === paused) return { ok: false, view: callout("It is too late.", `It is ${paused ? "paused" : "active"} already.`) };
      return { ok: true, view: status(s, paused ? callout("Nothing is delivered until it is resumed.", "Messages in flight can still be acknowledged.") : callout("Deliveries continue.", "Waiting messages are delivered in order.")) };
    },
    make: (reason) => api.changeSubscription(name, paused ? "pause" : "resume", null, reason),
  });

  const seek = () => {
    const note = h("div", { role: "status" });
    let s = null;
    const at = h("input", { type: "text", autocomplete: "off", placeholder: "2026-01-31T08:00:00Z", "data-key": "seek-at" });
    const where = h("label", { hidden: true }, "Time (UTC)", at);
    const to = h("select", { "data-key": "seek-to", onchange: () => effect() }, [["latest", "the end of its topics"], ["earliest", "the start of its topics"], ["time", "a time"]].map(([v, t]) => h("option", { value: v }, t)));
    const effect = () => {
      where.hidden = to.value !== "time";
      fill(note, to.value === "latest"
        ? callout(`${plural(s.lag, "record")} will not be delivered.`, "Messages in flight and messages that wait for another delivery are among them.", true)
        : callout("Records from there on are delivered again,", "also those that were acknowledged. Leases end, and messages that wait for another delivery are removed; later records are not lost."));
    };
    ask({
      title: `Move the position of ${name}`, word: "Move", danger: true, said: "The position moves within seconds.", done: read,
      look: async () => { s = await api.subscriptionStatus(name); effect(); return { ok: true, view: status(s, note) }; },
      form: [h("label", null, "Continue at", to), where],
      make: (reason) => api.changeSubscription(name, "seek", { to: to.value === "time" ? at.value.trim() : to.value }, reason),
    });
  };

  // redeliver needs a preview of just these fields; a change of one needs another.
  const redeliver = () => {
    let plan = null, request = "", asked = 0;
    const out = h("div", { class: "stack", role: "status" });
    const field = (key, attrs) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-key": `redeliver-${key}`, oninput: again, onkeydown: (e) => { if (e.key === "Enter" && !plan) preview(); }, ...attrs });
    const topic = h("select", { "data-key": "redeliver-topic", onchange: again }, h("option", { value: "" }, "all"), [...new Set(now.partitions.map((p) => p.topic))].map((t) => h("option", { value: t }, visible(t))));
    const key = field("key", { maxlength: 1000, placeholder: "customer-42" }), filter = field("filter", { maxlength: 4000, placeholder: "data.total > 100" });
    const since = field("since", { placeholder: "2026-01-31T08:00:00Z" }), until = field("until", { placeholder: "now" });
    const rate = h("input", { type: "number", min: 0, step: "any", placeholder: "no limit", "data-key": "redeliver-rate" });
    const values = () => Object.fromEntries(Object.entries({ topic: topic.value, key: key.value, filter: filter.value.trim(), since: since.value.trim(), until: until.value.trim() }).filter(([, v]) => v));
    const button = h("button", { type: "button", class: "button", "data-key": "redeliver-preview", onclick: preview }, "Preview");
    const refresh = ask({
      title: `Redeliver messages of ${name}`, wide: true, word: "Redeliver", said: "The job reads the topics and redelivers.", done: (job) => (job?.id ? go(`/jobs/${job.id}`) : read()),
      look: async () => ({ ok: true, view: callout("Settled messages are delivered once more, to this subscription alone.", "At most 10,000, of a key, of a filter or of a time, one of a key at a time and in order. Deliveries count from zero.") }),
      form: [h("div", { class: "preview" }, h("label", null, "Record key, all of it", key), h("label", null, "Filter (CEL)", filter), h("label", null, "Written since (UTC)", since), h("label", null, "Written before (UTC)", until), h("label", null, "Topic", topic), h("label", null, "Most per second", rate)), h("div", null, button), out],
      first: key, ready: () => plan?.messages > 0 || plan?.truncated,
      make: (reason) => api.redeliver(name, { topic: plan.topic, key: plan.key, filter: plan.filter, since: plan.since, until: plan.until, ...(Number(rate.value) > 0 ? { rate: Number(rate.value) } : {}) }, request, reason),
    });

    function again() {
      asked++;
      plan = null;
      fill(out, h("p", { class: "muted" }, "The preview shows what is delivered."));
      refresh();
    }

    async function preview() {
      const mine = ++asked;
      plan = null;
      fill(out, loading("the topics"));
      refresh();
      let view = null;
      try {
        const got = (await api.redeliver(name, { ...values(), dry_run: true })).preview;
        if (mine !== asked) return;
        // A repeated request with this key makes no second job.
        [plan, request] = [got, Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("")];
        view = planned(plan);
      } catch (err) {
        if (mine !== asked) return;
        view = h("p", { class: "danger-text" }, `The preview failed: ${sentence(err.message)}`, err.errors.map((x) => [h("br"), [x.location?.replace(/^body\.?/, ""), x.message].filter(Boolean).join(": ")]));
      }
      fill(out, view);
      refresh();
    }
    again();
  };

  // planned shows what a redelivery delivers.
  const planned = (p) => [
    p.messages > 0 || p.truncated
      ? callout(`${p.truncated ? "At least " : ""}${plural(p.messages, "message")} of ${plural(p.keys, "key")}.`, `${plural(p.records, "record")} read.${p.truncated ? " The topics have more, which the job reads." : ""}${p.paused ? " The subscription is paused: they are delivered once it is resumed." : ""}`)
      : h("p", { class: "callout warn" }, sentence(p.problem)),
    facts([["First", p.first && [stamp(p.first), " · ", ago(p.first)]], ["Last", p.last && [stamp(p.last), " · ", ago(p.last)]], ["Not settled", p.waiting > 0 && `${plural(p.waiting, "message")}, delivered anyway`],
      ["Open dead letters", p.dead_letters > 0 && h("a", { href: href("/dead-letters", { table: `subscription.${name}` }) }, `${plural(p.dead_letters, "message")}, left out: replay them`)], ["Interrupted", p.interrupted > 0 && `${plural(p.interrupted, "message")} of a redelivery before`]]),
    p.partitions.length > 0 && h("div", { class: "preview" },
      h("div", null, h("h3", null, "Partitions"), h("ul", { class: "tally" }, p.partitions.map((x) => h("li", null, h("b", null, count(x.messages)), " ", h("span", { class: "mono" }, `${visible(x.topic)}[${x.partition}]`), ` offsets ${x.first_offset} to ${x.last_offset}`)))),
      h("div", null, h("h3", null, "First messages"), h("ul", { class: "tally" }, p.sample.map((x) => h("li", null, h("span", { class: "mono" }, visible(x.key || "no key")), ` ${visible(x.type ?? "")} `, h("span", { class: "muted" }, stamp(x.at))))))),
  ];

  const purge = () => {
    let n = 0, until = "";
    const typed = h("input", { type: "text", inputmode: "numeric", autocomplete: "off", "data-key": "typed" });
    const guard = h("label", null, "Type the number of messages to confirm", typed);
    ask({
      title: `Purge ${name}`, word: "Purge", danger: true, said: "Purged.", done: read,
      look: async () => {
        until = new Date(serverTime()).toISOString();
        n = (await api.changeSubscription(name, "purge", { dry_run: true, until })).count;
        return n ? { ok: true, view: callout(`${plural(n, "message")} will never be delivered.`, "They are settled without a consumer, which cannot be undone. Messages in flight and newer ones stay.", true) } : { ok: false, view: callout("There is nothing to purge.", "No message waits.") };
      },
      form: guard,
      make: (reason) => {
        if (typed.value.replace(/\D/g, "") !== String(n)) throw Object.assign(new Error(`type ${n} to confirm`), { errors: [] });
        return api.changeSubscription(name, "purge", { dry_run: false, until }, reason);
      },
    });
  };

  const end = (l, reject) => () => ask({
    title: reject ? "Reject this message" : "End this lease", word: reject ? "Reject it" : "End it", danger: true, said: reject ? "Rejected: the message is a dead letter." : "Ended: the message can be delivered again.", done: read,
    look: async () => {
      const there = (await api.leases(name)).leases.some((x) => x.id === l.id);
      return there
        ? { ok: true, view: [callout(reject ? "The message becomes a dead letter." : "The message is delivered again immediately.", `Its consumer may still work on it and cannot acknowledge it any more.${reject ? "" : " The delivery does not count."}`, true), facts([["Message", h("span", { class: "mono break" }, visible(l.event_id ?? l.id))], ["Consumer", l.consumer && visible(l.consumer)], ["Received", [stamp(l.received_at), " · ", ago(l.received_at)]]])] }
        : { ok: false, view: callout("It is too late.", "The lease has ended.") };
    },
    make: (reason) => (reject ? api.rejectLease : api.endLease)(name, l.id, reason),
  });

  const inFlight = () => leases.leases.length > 0 && panel("Leases", { aside: (leases.next || leases.unknown) && h("span", { class: "small muted" }, "not all are shown") }, h("div", { class: "scroll", role: "region", "aria-label": "Leases", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Messages in flight, the one received first at the beginning"),
    h("thead", null, h("tr", null, ["Message", "Place", "Consumer", "Delivery", "Received", "Expires", ...(may("end-lease") && !now.subscription.push ? [""] : [])].map((t) => h("th", { scope: "col" }, t || h("span", { class: "hidden-text" }, "Actions"))))),
    h("tbody", null, leases.leases.map((l) => h("tr", null,
      h("td", { "data-label": "Message", class: "nowrap" }, l.event_id ? h("a", { class: "mono", href: href(`/events/${encodeURIComponent(l.event_id)}`), title: visible(l.event_id) }, visible(short(l.event_id))) : "no id"),
      h("td", { "data-label": "Place", class: "nowrap" }, h("span", { class: "mono clip", title: visible(l.topic) }, visible(l.topic)), h("span", { class: "mono" }, `[${l.partition}]@${l.offset}`)),
      h("td", { "data-label": "Consumer" }, visible(l.consumer ?? "unknown")),
      h("td", { "data-label": "Delivery", class: "num" }, `${count(l.attempt)} of ${count(l.max_receive)}`),
      h("td", { "data-label": "Received" }, ago(l.received_at)), h("td", { "data-label": "Expires" }, ago(l.expires_at)),
      may("end-lease") && !now.subscription.push && h("td", { class: "does" }, h("div", { class: "row actions" }, h("button", { type: "button", class: "button", "data-key": `end-${l.id}`, onclick: end(l) }, "End…"), h("button", { type: "button", class: "button danger", "data-key": `reject-${l.id}`, onclick: end(l, true) }, "Reject…")))))))));

  const action = (right, key, title, run, danger) => may(right) && h("button", { type: "button", class: `button ${danger ? "danger" : ""}`, "data-key": `act-${key}`, onclick: run }, title);

  function draw() {
    const s = now.subscription, dead = { table: `subscription.${name}` }, running = now.instances.filter((i) => !silent(i)), state = stateOf({ paused: s.paused, instances: running.length, suspended: suspended(running) });
    fill(ctx.el, h("div", { class: "stack" },
      h("header", { class: "detail-head" },
        h("p", { class: "crumbs small" }, h("a", { href: href("/subscriptions"), "data-key": "crumb" }, "Subscriptions"), " / ", h("span", { class: "mono break" }, visible(name)), copyButton(name, "name")),
        h("div", { class: "row between" },
          h("div", { class: "row title" }, h("h1", { tabindex: "-1", class: "break" }, visible(name)), mark(subscriptionStates, state), h("span", { class: "muted" }, subscriptionStates[state][1])),
          h("div", { class: "row actions" },
            s.paused ? action("resume-subscription", "resume", "Resume", pause(false)) : action("pause-subscription", "pause", "Pause", pause(true)),
            action("seek-subscription", "seek", "Seek…", seek), action("redeliver-subscription", "redeliver", "Redeliver…", redeliver), action("purge-subscription", "purge", "Purge…", purge, true),
            !may("pause-subscription") && h("span", { class: "muted small" }, "Your role is read-only.")))),
      h("div", { class: "detail" },
        h("div", { class: "stack" },
          panel("Messages", {}, facts([
            ["Lag", `${plural(now.lag, "record")} not settled`], ["Oldest", oldest(now.oldest)],
            ["Waiting", count(now.waiting)], ["Waiting consumers", (now.consumers ?? []).map((c) => `${visible(c.consumer)} at ${visible(c.instance)}`).join(", ") || "none"], ["In flight", `${count(now.leased)} leased to consumers`], ["Deferred", `${count(now.deferred)} until another delivery`],
            ["Dead letters", h("a", { class: now.dead_letters ? "danger-text" : null, href: href("/dead-letters", dead), "data-key": "dead-letters" }, now.dead_letters >= 10_000 ? "10,000 or more open" : `${count(now.dead_letters)} open`)],
          ])),
          inFlight(),
          panel("Partitions", { aside: h("span", { class: "small muted" }, "messages in flight are leased by the owner") }, partitions(now.partitions)),
          panel("Processes", {}, processes(now.instances))),
        h("div", { class: "stack" },
          panel("Subscription", {}, facts([
            ["Topics", s.topics.map(visible).join(", ")], ["Types", s.types?.length ? s.types.map(visible).join(", ") : "all"], ["Filter", s.filter && h("code", { class: "break" }, visible(s.filter))], ["Transform", s.transform && h("code", { class: "break" }, visible(s.transform))],
            ["Start", visible(s.start)], ["Order", s.ordering === "none" ? "none" : s.ordering === "strict" ? "by key, strict" : "by key"], ["Visibility timeout", s.visibility_timeout], ["Longest delivery", s.max_extension],
            ["Deliveries", `up to ${count(s.max_receive)}`], ["Backoff", `${s.backoff} to ${s.max_backoff}, times ${s.backoff_multiplier}`],
            ["Dead letter queue", s.dead_letter?.name && h("a", { href: href("/dead-letters", { tag: s.dead_letter.name }) }, visible(s.dead_letter.name))], ["Retention", s.dead_letter?.retention_days && `${plural(s.dead_letter.retention_days, "day")} for resolved and failed dead letters`],
            ["Version", count(s.version)],
            ["Changed", [stamp(s.changed_at), s.changed_by && ` by ${visible(s.changed_by)}`]], ["Created", stamp(s.created_at)],
          ]))))));
  }

  ctx.every(3000, read);
  read();
}

function partitions(all) {
  if (!all.length) return h("p", { class: "muted" }, "No partition has a position yet.");
  return h("div", { class: "scroll", role: "region", "aria-label": "Partitions", tabindex: "0" }, h("table", { class: "cards" },
    h("caption", { class: "hidden-text" }, "Partitions, by topic and number"),
    h("thead", null, h("tr", null, ["Partition", "Owner", "Committed", "End", "Waiting", "In flight", "Deferred"].map((t, i) => h("th", { scope: "col", class: i > 1 ? "num" : null }, t)))),
    h("tbody", null, all.map((p) => h("tr", null,
      h("td", { "data-label": "Partition", class: "nowrap" }, h("span", { class: "mono clip", title: visible(p.topic) }, visible(p.topic)), h("span", { class: "mono" }, `[${p.partition}]`)),
      h("td", { "data-label": "Owner" }, p.owner ? h("span", { class: "clip", title: visible(p.owner) }, visible(p.owner)) : h("span", { class: "danger-text" }, "none")),
      h("td", { "data-label": "Committed", class: "num nowrap" }, count(p.committed), p.committed_at && h("span", { class: "muted" }, " · ", ago(p.committed_at))),
      [["End", p.end], ["Waiting", p.waiting], ["In flight", p.leased], ["Deferred", p.deferred]].map(([label, n]) => h("td", { "data-label": label, class: "num" }, count(n))))))));
}

const breakerOf = (b) => [" · ", h("span", { class: `badge ${b.state === "closed" ? "b-resolved" : b.state === "open" ? "b-failed" : "b-pending"}` }, `breaker ${b.state}`),
  b.state !== "closed" && h("span", { class: "muted" }, " since ", ago(b.since), b.next_probe && [", next probe ", ago(b.next_probe)], b.cause && `: ${visible(b.cause)}`)];

const processes = (all) => all.length ? h("ul", { class: "plain" }, all.map((i) => h("li", { class: "break" },
  h("span", { class: "mono" }, visible(i.instance)), h("span", { class: "muted" }, ` · ${visible(i.address ?? "no address")} · ${plural(i.partitions, "partition")} · reported `, ago(i.at)), silent(i) ? [" · ", h("span", { class: "badge b-failed" }, "silent")] : i.breaker && breakerOf(i.breaker), i.last_error && h("span", { class: "danger-text" }, ` · ${visible(i.last_error)}`))))
  : h("p", { class: "danger-text" }, "No process runs it: start outbox subscriptions.");
