// Builds the page. Text only ever becomes a text node, so nothing that an event
// carries can become markup; the content security policy forbids the other ways.

const svgTags = new Set(["svg", "path", "rect", "line", "circle", "polyline", "polygon", "g", "text", "title"]);

// h makes an element: h("a", {href: "/x", onclick: f}, "text", child, [children]).
// Empty children are left out; css sets custom properties.
export function h(tag, props, ...children) {
  const svg = svgTags.has(tag) && !(tag === "title");
  const el = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "css") for (const [name, v] of Object.entries(value)) el.style.setProperty(name, v);
    else if (key === "value") el.value = value;
    else if (key === "checked" || key === "indeterminate") el[key] = Boolean(value);
    else if (key === "class") el.setAttribute("class", value);
    else el.setAttribute(key, value === true ? "" : String(value));
  }
  add(el, children);
  if (tag === "select" && props?.value !== undefined) el.value = props.value;
  return el;
}

function add(el, children) {
  for (const c of children) {
    if (Array.isArray(c)) add(el, c);
    else if (c !== null && c !== undefined && c !== false && c !== "") el.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
}

// fill replaces what is in el. What had the focus keeps it if its data-key is
// drawn again, so that live updates never throw a keyboard user off.
export function fill(el, ...children) {
  const active = document.activeElement;
  const key = active && el.contains(active) ? active.dataset?.key : null;
  const heading = active?.tagName === "H1" && el.contains(active); // where a new page begins
  const at = key && "selectionStart" in active ? safeSelection(active) : null;
  el.replaceChildren();
  add(el, children);
  if (heading) el.querySelector("h1")?.focus({ preventScroll: true });
  if (!key) return el;
  const again = el.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (again) {
    again.focus({ preventScroll: true });
    if (at && "setSelectionRange" in again) try { again.setSelectionRange(at[0], at[1]); } catch { /* not a text field */ }
  }
  return el;
}

function safeSelection(input) {
  try { return [input.selectionStart, input.selectionEnd]; } catch { return null; }
}

// icon draws one of few line icons; they are decoration, the text beside them speaks.
export function icon(name) {
  return h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: icons[name] }));
}

const icons = {
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3.05 3.05l1.06 1.06M11.9 11.9l1.05 1.05M3.05 12.95l1.06-1.06M11.9 4.1l1.05-1.05",
  moon: "M13.5 9.6A6 6 0 0 1 6.4 2.5a6 6 0 1 0 7.1 7.1z",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "m3 8.5 3.2 3.2L13 4.8",
  next: "m6 3.5 4.5 4.5L6 12.5",
  back: "M10 3.5 5.5 8l4.5 4.5",
  out: "M6.5 3.5h-3v9h9v-3M9.5 3h3.5v3.5M12.7 3.3 7.5 8.5",
  replay: "M3 8a5 5 0 1 0 1.6-3.7M3 2.5v3h3",
  warn: "M8 2.2 14.6 13.6H1.4zM8 6.5v3.2M8 11.6v.4",
  user: "M8 8.2a2.6 2.6 0 1 0 0-5.2 2.6 2.6 0 0 0 0 5.2M3 13.6c.5-2.3 2.4-3.6 5-3.6s4.5 1.3 5 3.6",
};
