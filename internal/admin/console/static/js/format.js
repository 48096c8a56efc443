// Numbers, sizes and times for people. Times are UTC, as in logs and the CLI, unless the
// user of this browser prefers local time.
import { h } from "./dom.js";
import { serverTime } from "./time.js";

const group = new Intl.NumberFormat("en-US");
export const count = (n) => group.format(n ?? 0);
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many ?? one + "s"}`;

export function bytes(n) {
  if (n < 1024) return plural(n, "byte");
  if (n < 1048576) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / 1048576).toFixed(1)} MiB`;
}

// span is a duration in milliseconds in one or two units.
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (ms < 1000 && ms > 0) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return s < 600 && s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

const zone = "outbox.local";
export const isLocal = () => { try { return localStorage.getItem(zone) === "on"; } catch { return false; } };
export const useLocal = (on) => { try { on ? localStorage.setItem(zone, "on") : localStorage.removeItem(zone); } catch { /* storage is off: UTC */ } };

// stamp is a moment, to the second or millisecond.
export const stamp = (at) => (isLocal() ? local(at) : utc(at));

function utc(at) {
  const d = new Date(at);
  return Number.isNaN(d.getTime()) ? String(at) : d.toISOString().replace("T", " ").replace(/\.(\d{3})Z$/, (_, ms) => (ms === "000" ? "Z" : `.${ms}Z`));
}

// clock is the time of day.
export const clock = (at) => (isLocal() ? new Date(at).toLocaleTimeString("sv-SE") : new Date(at).toISOString().slice(11, 19) + "Z");

// Go's zero time stands for none.
export const known = (at) => Boolean(at) && !String(at).startsWith("0001-");

function relative(at) {
  const ms = serverTime() - new Date(at).getTime();
  if (Math.abs(ms) < 2000) return "now";
  const s = Math.abs(ms) / 1000;
  const text = s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

// local is a time in the time zone of the browser.
function local(at) {
  const d = new Date(at);
  return Number.isNaN(d.getTime()) ? String(at) : d.toLocaleString("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
}

// ago is a moment as its distance from now, kept right, with the time itself behind it.
export function ago(at, none = "–") {
  if (!known(at)) return h("span", { class: "muted" }, none);
  return h("time", { datetime: new Date(at).toISOString(), title: `${utc(at)}, local time ${local(at)}`, "data-ago": "" }, relative(at));
}

// unknown stands where a value cannot be read.
export const unknown = () => h("span", { class: "muted" }, "unknown");

// oldest is the age of what has waited longest. While a page is outdated it is unknown: that may have been settled.
export function oldest(at) {
  const t = ago(at, "none");
  if (known(at)) t.dataset.ago = "oldest";
  return t;
}

setInterval(() => {
  const stale = document.body.classList.contains("stale");
  for (const t of document.querySelectorAll("time[data-ago]")) {
    const text = stale && t.dataset.ago === "oldest" ? "unknown" : relative(t.getAttribute("datetime"));
    if (t.textContent !== text) t.textContent = text;
  }
}, 1000);

// timed is a text of the server, whose times are shown as all others are, each on one line.
export const timed = (text) => visible(text).split(/(\d{4}-\d\d-\d\dT[\d:.]+Z)/).map((part, i) => (i % 2 ? h("span", { class: "nowrap" }, stamp(part)) : part));

// short is an id that fits a table; its title and its link have all of it.
export const short = (id) => (id && id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-5)}` : id ?? "");

// visible shows control and bidirectional characters as what they are: an error text must
// not look like something else.
export const visible = (s) => String(s ?? "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
  (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
