// The content of an event, of a dead letter or a scheduled message: payload and
// headers, as they are.
import { h } from "./dom.js";
import { bytes, count, visible } from "./format.js";
import { pretty, prettyText, prettyView } from "./json.js";
import { copyButton, panel, tabs } from "./parts.js";

const most = 20_000; // characters that are shown before somebody asks for all
const mostOfHeader = 1000;

export const binary = (e) => e.payload_text === undefined && e.payload_base64 !== undefined;

// first is the view that a payload is shown in first.
export const first = (e) => (binary(e) ? "hex" : pretty(e.payload_text ?? "") ? "pretty" : "raw");

// decoded is e with the JSON that a schema gives its payload, if there is one, as the text.
export const decoded = (e, json) => (json === undefined ? e : { ...e, payload_text: json, decoded: true });

// payload shows that of e, which has payload_text, payload_base64 or neither. state
// keeps the view and whether all is shown; draw is called when it has changed.
export function payload(e, state, draw) {
  const text = e.payload_text ?? null, raw = binary(e) || e.decoded ? Uint8Array.from(atob(e.payload_base64), (c) => c.charCodeAt(0)) : null;
  const size = raw ? raw.length : new TextEncoder().encode(text ?? "").length;
  const lines = text !== null ? pretty(text) : null;
  const views = [lines && ["pretty", e.decoded ? "Decoded" : "Pretty"], text !== null && !e.decoded && ["raw", "Raw"], ["hex", "Hex"]].filter(Boolean);
  const none = text === null && !raw, big = size > most && !state.whole;
  const show = () => {
    if (state.view === "hex") return hex(raw ?? new TextEncoder().encode(text), big ? most / 4 : Infinity);
    const some = state.view === "pretty" && lines && (big ? beginning(lines) : lines);
    return some?.length ? prettyView(some) : visible(big ? text.slice(0, most) : text);
  };
  const body = none ? h("p", { class: "muted" }, "It has no payload (null).") : !size ? h("p", { class: "muted" }, "Its payload is empty.") : h("pre", { class: "code payload", tabindex: "0", "aria-label": "Payload" }, show());
  return panel("Payload", { aside: h("div", { class: "row" }, h("span", { class: "small muted" }, `${visible(e.content_type || "no content type")} · ${bytes(size)}${e.decoded ? ", decoded by its schema" : ""}`), size > 0 && views.length > 1 && tabs("How the payload is shown", views, state.view, (v) => { state.view = v; draw(); }),
    size > 0 && copyButton(state.view === "pretty" && text ? prettyText(text) ?? text : text ?? e.payload_base64, "payload")) },
  body, big && h("p", { class: "row" }, h("span", { class: "muted" }, "Only the beginning is shown."), h("button", { type: "button", class: "button", "data-key": "whole", onclick: () => { state.whole = true; draw(); } }, "Show all")));
}

// beginning is as many lines as may be shown; none if the first is too long.
function beginning(lines) {
  let n = 0;
  for (let size = 0; n < lines.length; n++) if ((size += lines[n].indent * 2 + lines[n].parts.reduce((sum, p) => sum + p[1].length, 0)) > most) break;
  return lines.slice(0, n);
}

function hex(data, end) {
  const out = [];
  for (let i = 0; i < Math.min(data.length, end); i += 16) {
    const row = [...data.subarray(i, i + 16)];
    out.push(`${i.toString(16).padStart(8, "0")}  ${row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("")}`);
  }
  return out.join("\n");
}

// headers shows headers; long ones are cut until somebody asks for all of one.
export function headers(map, state, draw) {
  const open = (state.open ??= new Set());
  const value = (k, v) => (v.length <= mostOfHeader || open.has(k) ? visible(v) : [visible(v.slice(0, mostOfHeader)), "… ",
    h("button", { type: "button", class: "link", "data-key": `all-${k}`, onclick: () => { open.add(k); draw(); } }, `Show all ${count(v.length)} characters`)]);
  return pairs("Headers", map, { none: "It has no headers.", value });
}

// pairs shows names and values.
export function pairs(title, map, { none, says, value = (k, v) => visible(v) } = {}) {
  const all = Object.entries(map ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return panel(title, { aside: says && h("span", { class: "small muted" }, says) }, all.length
    ? h("table", { class: "pairs" }, h("caption", { class: "hidden-text" }, title), h("tbody", null, all.map(([k, v]) => h("tr", null, h("th", { scope: "row", class: "mono" }, visible(k)), h("td", { class: "mono break" }, value(k, v))))))
    : h("p", { class: "muted" }, none));
}
