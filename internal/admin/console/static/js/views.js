// Saved views: the filters of a list that the user of this browser has given a name.
import { dialog, toast } from "./dialog.js";
import { h } from "./dom.js";
import { go, href, search } from "./router.js";

const most = 30, longest = 60; // of a list, and characters of a name

// savedViews returns the controls of the views of the list at path, which current, its
// filter now, belongs to. A view has no page: it shows the list from its start.
export function savedViews(path, current) {
  const key = `outbox.views${path}`, now = search(current);
  const read = () => {
    try { return Object.entries(JSON.parse(localStorage.getItem(key)) ?? {}).filter(([, v]) => typeof v === "string"); } catch { return []; }
  };
  const write = (all, says) => {
    try {
      localStorage.setItem(key, JSON.stringify(Object.fromEntries(all)));
      toast(says);
    } catch { toast("The browser does not let the page save views.", { bad: true }); }
    go(path + now, { replace: true });
  };
  const all = read().sort(([a], [b]) => a.localeCompare(b)), shown = all.find(([, v]) => v === now)?.[0] ?? "";
  return [
    all.length > 0 && h("label", null, "View", h("select", { name: "view", value: shown, "data-key": "f-view", onchange: (e) => go(path + (all.find(([name]) => name === e.target.value)?.[1] ?? "")) },
      h("option", { value: "" }, now ? "not saved" : "none"), all.map(([name]) => h("option", { value: name }, name)))),
    shown && h("button", { type: "button", class: "button quiet clear", "data-key": "forget-view", onclick: () => write(all.filter(([name]) => name !== shown), `The view ${shown} was deleted.`) }, "Delete view"),
    now && !shown && h("button", { type: "button", class: "button quiet clear", "data-key": "save-view", onclick: ask }, "Save view"),
  ];

  function ask() {
    const name = h("input", { type: "text", maxlength: longest, required: true, autocomplete: "off", autofocus: true, "data-key": "view-name", oninput: () => { yes.disabled = !name.value.trim(); } });
    const yes = h("button", { type: "submit", class: "button primary", disabled: true, "data-key": "yes" }, "Save");
    const box = dialog({
      title: "Save this view",
      content: h("div", { class: "stack" }, h("label", null, "Name", name), h("p", { class: "small muted" }, "It is saved in this browser. To share it, send the ", h("a", { href: href(path, current) }, "link to this page"), ". A view of the same name is replaced.")),
      buttons: [h("span", { class: "grow" }), h("button", { type: "button", class: "button", onclick: () => box.close() }, "Close"), yes],
    });
    box.el.querySelector("form").addEventListener("submit", (e) => {
      e.preventDefault();
      const others = read().filter(([n]) => n !== name.value.trim());
      if (yes.disabled) return;
      box.close();
      if (others.length >= most) toast(`A list has at most ${most} views: delete one first.`, { bad: true });
      else write([...others, [name.value.trim(), now]], `The view ${name.value.trim()} was saved.`);
    });
  }
}
