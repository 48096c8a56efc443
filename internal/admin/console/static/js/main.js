// Starts the console: sign-in, frame, pages, shortcuts.
import { api, settings, signOut, whenUnauthorized } from "./api.js";
import { dialog, toast } from "./dialog.js";
import { fill, h, icon } from "./dom.js";
import { clock, isLocal, span, useLocal } from "./format.js";
import * as keys from "./keys.js";
import { live } from "./live.js";
import { empty, failed, loading, sentence } from "./parts.js";
import { go, href, route, search, start } from "./router.js";
import { askOtherTabs, keep, leave, me, token } from "./session.js";
import { elapsed, serverTime } from "./time.js";
import { roleMeans } from "./words.js";
import { aggregate } from "./pages/aggregate.js";
import { archive } from "./pages/archive.js";
import { audit } from "./pages/audit.js";
import { edit } from "./pages/edit.js";
import { event } from "./pages/event.js";
import { events } from "./pages/events.js";
import { groups } from "./pages/groups.js";
import { job } from "./pages/job.js";
import { jobs } from "./pages/jobs.js";
import { deadLetter } from "./pages/deadletter.js";
import { deadLetters } from "./pages/deadletters.js";
import { message } from "./pages/message.js";
import { order } from "./pages/order.js";
import { orders } from "./pages/orders.js";
import { overview } from "./pages/overview.js";
import { scheduled } from "./pages/scheduled.js";
import { subscription } from "./pages/subscription.js";
import { subscriptions } from "./pages/subscriptions.js";
import { topic } from "./pages/topic.js";
import { topics } from "./pages/topics.js";

const nav = [["/", "Overview", "o"], ["/groups", "Groups", "g"], ["/dead-letters", "Dead letters", "l"], ["/events", "Events", "e"], ["/jobs", "Jobs", "j"], ["/subscriptions", "Subscriptions", "u"], ["/topics", "Topics", "t"], ["/archive", "Archive", "v"], ["/scheduled", "Scheduled", "s"], ["/audit", "Audit", "a"]];
const ordersNav = ["/orders", "Orders", "r"]; // where the API has the orders of the example
const main = document.getElementById("main"), bar = document.getElementById("bar"), notice = document.getElementById("notice");
const conf = {};
const retryAfter = 5000; // of a page that could not be read
const lateAfter = 9000; // of a page whose data is awaited; topics are searched for 8 s
let leavePage = () => {};
let framed = false, begun = false;

async function boot() {
  if (!token()) {
    const other = await askOtherTabs();
    if (other) keep(other);
  }
  try {
    Object.assign(conf, await settings());
    if (!token() && !conf.sign_in) return signIn();
    Object.assign(me, await api.me());
    if (conf.orders && !nav.includes(ordersNav)) {
      nav.splice(-2, 0, ordersNav);
      goTo(ordersNav);
    }
  } catch (err) {
    if (err.status === 401) return signIn(token() && "The token is unknown or has expired.");
    document.title = "Outbox";
    return fill(main, h("h1", { tabindex: "-1" }, "The API does not respond"), failed(err, boot));
  }
  frame();
  live.run();
}

whenUnauthorized(() => { if (framed) signIn(`The ${token() ? "token is no longer valid" : "session has ended"}. Nothing was changed.`); });

// signIn keeps the address, so that a shared link works after it.
function signIn(why) {
  framed = false;
  leavePage(); leavePage = () => {};
  keep(null);
  fill(bar, h("div", { class: "bar-in" }, brand()));
  fill(notice);
  document.title = "Sign in · Outbox";
  const input = h("input", { type: "password", name: "token", autocomplete: "off", spellcheck: "false", required: true, autofocus: true, "data-key": "token" });
  fill(main, h("form", { class: "panel signin stack", onsubmit: (e) => { e.preventDefault(); keep(input.value.trim()); if (begun) location.reload(); else { fill(main, loading("who you are")); boot(); } } },
    h("h1", { tabindex: "-1" }, "Sign in"),
    why && h("p", { class: "danger-text", role: "alert" }, why),
    conf.sign_in && h("div", null, h("button", { class: "button primary", type: "button", "data-key": "issuer", onclick: () => location.assign(`/console/sign-in${search({ return: location.pathname + location.search })}`) }, `Sign in with ${conf.sign_in}`)),
    !why && h("p", { class: "muted" }, conf.sign_in ? "Or use a token of the API. It is kept in this browser tab until you close it." : "The console needs a token of the API. The token is kept in this browser tab until you close it."),
    h("label", null, "Token", input),
    h("div", null, h("button", { class: `button${conf.sign_in ? "" : " primary"}`, type: "submit" }, "Open the console")),
    h("p", { class: "small muted" }, "A link may contain it: ", h("code", null, "/console#token=…"), ". It is removed from the address immediately.")));
  (main.querySelector("[data-key=issuer]") ?? input).focus();
}

// signOutEverywhere ends the session of the cookie and removes the token of all tabs.
async function signOutEverywhere() {
  try {
    if (conf.sign_in) await signOut();
    leave();
  } catch (err) {
    toast(`You are still signed in: ${err.message}.`, { bad: true });
  }
}

const brand = () => h("a", { class: "brand", href: href("/"), "data-key": "brand" },
  h("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" }, h("rect", { width: 32, height: 32, rx: 7 }), h("path", { d: "M7 10.5h18v12H7zM7 11l9 7 9-7" })), "Outbox");

function frame() {
  framed = begun = true;
  const links = nav.map(([path, name]) => h("a", { href: href(path), "data-path": path }, name));
  const state = h("span", { class: "live" });
  fill(bar, h("div", { class: "bar-in" }, brand(),
    h("nav", { class: "tabs", "aria-label": "Pages" }, links),
    h("div", { class: "row bar-end" }, state,
      h("button", { type: "button", class: "button quiet who", onclick: who, title: `${me.role}: ${roleMeans[me.role] ?? ""}` }, icon("user"), h("span", { class: "who-name" }, me.name), h("span", { class: "role" }, me.role)),
      h("button", { type: "button", class: "button quiet square", onclick: switchTheme, "aria-label": "Switch between light and dark", title: "Light or dark (t)" }, icon("sun")),
      h("button", { type: "button", class: "button quiet square", onclick: help, "aria-label": "Shortcuts and help", title: "Shortcuts and help (?)" }, "?"))));

  const light = (look, word) => fill(state, h("span", { class: `dot ${look}`, "aria-hidden": "true" }), h("span", { class: "live-word" }, word));
  let shown = "";
  const connection = () => {
    const old = live.outdated, at = old && clock(old.since);
    light(old ? "lost" : live.state, old && live.state !== "lost" ? "Outdated" : { live: "Live", connecting: "Connecting", lost: "Not live" }[live.state]);
    document.body.classList.toggle("stale", Boolean(old));
    document.body.style.setProperty("--as-of", `"as of ${at}"`); // beside everything that shows a state
    const [title, text, more] = !old ? [] : {
      connection: () => [`Connection lost at ${at}.`, "The page shows the state of that time and may be outdated.", h("button", { type: "button", class: "button", "data-key": "retry", onclick: () => live.retry() }, "Try now")],
      database: () => ["The database cannot be reached.", `The page may be outdated since ${at}. The server keeps retrying.`],
      page: () => ["This page is not up to date.", `It shows the state of ${at}. ${sentence(old.err.message)} The console keeps trying.`],
    }[old.why]();
    if (shown === `${title} ${text}`) return; // the same again is not announced
    shown = `${title} ${text}`;
    fill(notice, old && h("div", { class: "lost-bar" }, icon("warn"), h("span", { class: "grow" }, h("b", null, title), ` ${text} `, more && h("span", { class: "next-try", "aria-live": "off" })), more));
  };
  live.addEventListener("state", connection);
  setInterval(() => {
    const at = notice.querySelector(".next-try");
    if (at) at.textContent = live.retryAt ? `Outdated for ${span(serverTime() - live.since)}; next attempt in ${span(Math.max(0, live.retryAt - elapsed()))}.` : "Connecting…";
  }, 1000);
  connection();

  start((page, params, first) => {
    leavePage();
    keys.leavePage();
    const path = location.pathname.slice("/console".length) || "/";
    for (const a of links) {
      const on = a.dataset.path === "/" ? path === "/" : path.startsWith(a.dataset.path);
      if (on) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
    }
    scrollTo(0, 0);
    leavePage = render(page ?? missing, params);
    if (!first) main.querySelector("h1")?.focus({ preventScroll: true });
  });
}

// render gives a page a place and takes back what it started.
function render(page, params) {
  const gone = new AbortController();
  const ctx = {
    params, conf, el: main, signal: gone.signal,
    title(text) { document.title = `${text} · Outbox`; },
    // on listens to the live stream for as long as the page is shown.
    on(names, f) { for (const n of names) live.addEventListener(n, (e) => f(e.detail, n), { signal: gone.signal }); },
    // reader returns what calls f, which reads the page and draws it; never does it throw. As long as f
    // has never succeeded, place shows why: an element, or a function of what is shown. Later failures
    // mark the page, which shows the state of the last success; so does a wait. It is called again after a failure
    // that may pass, and when connection or database are back. missing handles errors of another kind.
    reader(f, place, missing = () => false) {
      let at = 0, timer = 0;
      const read = async () => {
        clearTimeout(timer);
        const began = serverTime(), late = setTimeout(() => at && live.mark(read, at, new Error("its data takes long")), lateAfter);
        try {
          await f();
          at = began;
          live.mark(read);
        } catch (err) {
          if (gone.signal.aborted) return;
          if (missing(err)) { live.mark(read); return; }
          if (at) live.mark(read, at, err);
          else if (place instanceof Element) fill(place, failed(err, read));
          else place(failed(err, read));
          if (!err.status || err.status === 429 || err.status >= 500) timer = setTimeout(read, retryAfter);
        } finally { clearTimeout(late); }
      };
      ctx.on(["again"], read);
      gone.signal.addEventListener("abort", () => { clearTimeout(timer); live.mark(read); });
      return read;
    },
    // soon calls f once for many changes.
    soon(names, f, ms = 400) {
      let timer = 0;
      const later = () => { timer ||= setTimeout(() => { timer = 0; if (!gone.signal.aborted) f(); }, ms); };
      ctx.on(names, later);
      gone.signal.addEventListener("abort", () => clearTimeout(timer));
    },
    // every calls f again and again, one call after the other, for what the stream
    // does not tell of, as long as somebody sees the page.
    every(ms, f) {
      let busy = false;
      const timer = setInterval(async () => {
        if (document.hidden || busy) return;
        busy = true;
        try { await f(); } finally { busy = false; }
      }, ms);
      gone.signal.addEventListener("abort", () => clearInterval(timer));
    },
  };
  page(ctx);
  return () => gone.abort();
}

function goTo([path, name, key]) { keys.shortcut(`g${key}`, `go to ${name.toLowerCase()}`, () => framed && go(path)); }

function missing(ctx) {
  ctx.title("No such page");
  fill(ctx.el, h("h1", { tabindex: "-1" }, "No such page"), empty("There is no page at this address.", `${location.pathname} does not exist. The address may be incomplete.`, h("a", { class: "button", href: href("/") }, "To the overview")));
}

function who() {
  dialog({
    title: "Who you are",
    content: h("div", { class: "stack tight" }, h("p", null, h("b", null, me.name), ` is ${me.role === "operator" || me.role === "admin" ? "an" : "a"} ${me.role}.`), h("p", { class: "muted" }, sentence(`That role ${roleMeans[me.role] ?? "is unknown to the console"}`))),
    buttons: [h("span", { class: "grow" }), h("button", { type: "button", class: "button", onclick: signOutEverywhere }, "Sign out of all tabs")],
  });
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const next = dark ? "light" : "dark";
  // Going back to what the system has follows the system again.
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  if (next === system) delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = next;
  try { next === system ? localStorage.removeItem("outbox.theme") : localStorage.setItem("outbox.theme", next); } catch { /* for this page only */ }
}

function help() {
  const row = (s) => [h("dt", null, [...s.keys].map((k) => [h("kbd", null, k), " "])), h("dd", null, s.says)];
  const all = keys.list();
  dialog({
    title: "Shortcuts and help",
    wide: true,
    content: h("div", { class: "stack" },
      h("div", { class: "help" },
        all.some((s) => s.page) && h("div", null, h("h3", null, "On this page"), h("dl", { class: "keys" }, all.filter((s) => s.page).map(row))),
        h("div", null, h("h3", null, "Everywhere"), h("dl", { class: "keys" }, all.filter((s) => !s.page).map(row), h("dt", null, h("kbd", null, "Esc")), h("dd", null, "close a dialog, change nothing")))),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: keys.enabled(), onchange: (e) => keys.enable(e.target.checked) }), " Shortcuts are on. Tab and Enter reach everything without them."),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: isLocal(), "data-key": "local", onchange: (e) => { useLocal(e.target.checked); location.reload(); } }), " Show times in the time zone of this browser. Filters remain in UTC."),
      h("div", { class: "prose small muted" },
        h("p", null, "A dead letter is an event that the relay could not publish. In strict order the later events of its aggregate are blocked behind it until it is replayed, unblocked, resolved or discarded."),
        h("p", null, "Only the relay publishes: an action here changes the dead letter, and the relay acts on it within about a second. Every change shows a preview, asks for a reason, and is recorded in the audit trail. Times are UTC unless chosen otherwise above. The command ", h("code", null, "outbox dlq"), " provides the same actions."))),
  });
}

keys.shortcut("?", "this help", help);
nav.forEach(goTo);
keys.shortcut("t", "light or dark", switchTheme);

route("/", overview);
route("/groups", groups);
route("/dead-letters", deadLetters);
route("/dead-letters/:uuid", deadLetter);
route("/dead-letters/:uuid/edit", edit);
route("/aggregates/:id", aggregate);
route("/events", events);
route("/events/:id", event);
route("/jobs", jobs);
route("/jobs/:uuid", job);
route("/subscriptions", subscriptions);
route("/subscriptions/:name", subscription);
route("/topics", topics);
route("/topics/:name", topic);
route("/archive", archive);
route("/audit", audit);
route("/orders", orders);
route("/orders/:uuid", order);
route("/scheduled", scheduled);
route("/scheduled/:uuid", message);

boot();
