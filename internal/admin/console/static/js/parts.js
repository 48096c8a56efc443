// Parts that several pages use.
import { h, icon } from "./dom.js";
import { toast } from "./dialog.js";
import { count } from "./format.js";
import { outcomes, statusMeans } from "./words.js";

// badge is a status of a dead letter, with the outcome of a resolved one: what was discarded is in no topic.
export const badge = (status, unblocked, outcome) => h("span", { class: `badge b-${outcome === "discarded" ? "archived" : status}`, title: outcomes[outcome]?.[1] ?? statusMeans[status] },
  outcome ? `${status} · ${outcomes[outcome]?.[0] ?? outcome}` : status, unblocked && h("span", null, " · unblocked"));

// mark is a badge of another kind of states: name → [look, meaning].
export const mark = (states, state) => h("span", { class: `badge b-${states[state]?.[0] ?? "archived"}`, title: states[state]?.[1] }, String(state).replaceAll("_", " "));

// unread is why a part of a status is not known; what the status has of it is old.
export const unread = (status, part) => status.unknown.find((u) => u.startsWith(`${part}: `));

export const panel = (title, { aside, id, cls } = {}, ...content) => h("section", { class: `panel ${cls ?? ""}`, "aria-label": title, id },
  h("header", { class: "row between" }, h("h2", null, title), aside), content);

// empty explains why there is nothing, and offers the next step.
export const empty = (title, says, ...more) => h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", { class: "muted" }, says), more.length ? h("div", { class: "row" }, more) : null);

export const loading = (what) => h("p", { class: "muted loading", "aria-busy": "true" }, `Reading ${what}…`);

export function failed(err, again) {
  const says = err.status === 403 ? "Your role may not see this." : err.status === 404 ? "There is none." : "";
  return h("div", { class: "empty bad", role: "alert" }, h("p", { class: "empty-title" }, sentence(err.message)), says && h("p", { class: "muted" }, says),
    again && h("div", { class: "row" }, h("button", { type: "button", class: "button", onclick: again, "data-key": "again" }, "Try again")));
}

export const sentence = (s) => { const t = String(s || "").trim(); return t ? t[0].toUpperCase() + t.slice(1) + (/[.!?]$/.test(t) ? "" : ".") : ""; };

export function copyButton(text, what) {
  const b = h("button", { type: "button", class: "button quiet square", "aria-label": `Copy ${what}`, title: `Copy ${what}`, "data-key": `copy-${what}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      b.replaceChildren(icon("check"));
      setTimeout(() => b.replaceChildren(icon("copy")), 1500);
    } catch { toast("The browser does not let the page copy; select the text instead.", { bad: true }); }
  } }, icon("copy"));
  return b;
}

export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(([, v]) => v !== null && v !== undefined && v !== "" && v !== false).map(([k, v]) => [h("dt", null, k), h("dd", { class: "break" }, v)]));

// meter is a bar of parts; the numbers stand beside it, so it is decoration.
export const meter = (parts) => {
  const all = parts.reduce((n, p) => n + p.value, 0);
  return h("div", { class: "meter", "aria-hidden": "true" }, all ? parts.filter((p) => p.value > 0).map((p) => h("span", { class: `m-${p.name}`, css: { "--share": `${(p.value / all) * 100}%` } })) : null);
};

export const tally = (map, { name = (k) => k, link } = {}) => h("ul", { class: "tally" }, Object.entries(map ?? {}).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1])
  .map(([k, n]) => h("li", null, h("b", null, count(n)), " ", link ? h("a", { href: link(k) }, name(k)) : name(k))));

// tabs switches views by arrow keys, as the ARIA pattern has it.
export function tabs(label, views, chosen, choose) {
  const list = h("div", { class: "switch", role: "tablist", "aria-label": label });
  const draw = (now) => list.replaceChildren(...views.map(([key, name]) => h("button", {
    type: "button", role: "tab", "aria-selected": key === now ? "true" : "false", tabindex: key === now ? "0" : "-1", "data-key": `tab-${label}-${key}`,
    onclick: () => { draw(key); list.querySelector("[aria-selected=true]").focus(); choose(key); },
  }, name)));
  list.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const all = [...list.children], i = all.findIndex((b) => b.getAttribute("aria-selected") === "true");
    all[(i + step + all.length) % all.length].click();
  });
  draw(chosen);
  return list;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

// finder opens a page by an id: a UUID, or with any a text; open is told which.
export function finder(label, placeholder, open, any = false) {
  const input = h("input", { type: "text", class: "mono", placeholder, "aria-label": label, spellcheck: "false", autocomplete: "off", "data-key": "find", oninput: () => input.removeAttribute("aria-invalid") });
  return h("form", { class: "row finder", role: "search", "aria-label": label, onsubmit: (e) => {
    e.preventDefault();
    const id = input.value.trim();
    if (uuid.test(id)) open(id.toLowerCase(), true);
    else if (any && id) open(id, false);
    else { input.setAttribute("aria-invalid", "true"); input.setCustomValidity(any ? "Type an id." : "An id has 36 characters, such as 01a1fdab-a873-7804-8159-8f6ba00d992c."); input.reportValidity(); input.setCustomValidity(""); }
  } }, input, h("button", { type: "submit", class: "button" }, "Open"));
}
