// Dialogs: the native <dialog>, which makes the rest inert and restores the
// focus back, with Tab kept inside. And short messages in the corner.
import { h } from "./dom.js";

let n = 0;
const reach = "a[href], button:not([disabled]), input:not([disabled]), select:not([disabled]), textarea:not([disabled]), summary, [tabindex='0']";

// dialog opens one and returns {el, close}. onclose runs however it ends.
export function dialog({ title, wide, content, buttons, onclose, role }) {
  const id = `dialog-${++n}`;
  const opener = document.activeElement;
  const el = h("dialog", { class: wide ? "wide" : null, "aria-labelledby": id, role },
    h("form", { method: "dialog", onsubmit: (e) => e.preventDefault() },
      h("header", { class: "row between" }, h("h2", { id }, title),
        h("button", { type: "button", class: "button quiet square", "aria-label": "Close", onclick: () => el.close() }, "✕")),
      h("div", { class: "dialog-body", tabindex: "-1" }, content),
      buttons && h("footer", { class: "row" }, buttons)));
  el.addEventListener("keydown", (e) => {
    if (e.key !== "Tab") return;
    const all = [...el.querySelectorAll(reach)].filter((x) => x.checkVisibility());
    const to = e.shiftKey ? all[0] : all[all.length - 1];
    if (document.activeElement === to) { e.preventDefault(); (e.shiftKey ? all[all.length - 1] : all[0]).focus(); }
  });
  el.addEventListener("close", () => {
    el.remove();
    if (opener?.isConnected) opener.focus(); else document.querySelector("main h1")?.focus();
    onclose?.();
  });
  // A click beside it closes it, but not one that began inside, as when text is selected.
  let outside = false;
  el.addEventListener("pointerdown", (e) => { outside = e.target === el; });
  el.addEventListener("click", (e) => { if (e.target === el && outside) el.close(); });
  document.body.append(el);
  el.showModal();
  (el.querySelector("[autofocus]") ?? el.querySelector(".dialog-body " + reach.split(", ").join(", .dialog-body ")) ?? el.querySelector("footer button"))?.focus();
  return { el, close: () => el.close() };
}

export function toast(text, { bad, link, label } = {}) {
  const box = document.getElementById("toasts");
  const el = h("div", { class: `toast${bad ? " bad" : ""}` }, h("span", { class: "grow break" }, text), link && h("a", { href: link }, label),
    h("button", { type: "button", class: "button quiet square", "aria-label": "Dismiss", onclick: () => el.remove() }, "✕"));
  box.append(el);
  while (box.children.length > 3) box.firstChild.remove();
  if (!bad) setTimeout(() => el.remove(), 8000);
}
