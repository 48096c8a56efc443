// Shortcuts of one or two keys. They can be switched off, as WCAG 2.1.4 asks,
// and never act while somebody types or a dialog is open.

const all = []; // {keys, says, run, page}
let typed = "", timer;

export const enabled = () => { try { return localStorage.getItem("outbox.keys") !== "off"; } catch { return true; } };
export const enable = (on) => { try { on ? localStorage.removeItem("outbox.keys") : localStorage.setItem("outbox.keys", "off"); } catch { /* for this page only */ } };

export const shortcut = (keys, says, run) => all.push({ keys, says, run, page: false });
// onPage is a shortcut of the page that is shown.
export const onPage = (keys, says, run) => all.push({ keys, says, run, page: true });
export const leavePage = () => { for (let i = all.length - 1; i >= 0; i--) if (all[i].page) all.splice(i, 1); };
export const list = () => [...all];

addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.key.length !== 1 || document.querySelector("dialog[open]")) return;
  if (e.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
  if (!enabled() && e.key !== "?") return;
  clearTimeout(timer);
  timer = setTimeout(() => { typed = ""; }, 900);
  typed = (typed + e.key).slice(-2);
  const hit = all.findLast((s) => s.keys === typed) ?? (all.some((s) => s.keys.length === 2 && s.keys[0] === e.key) ? null : all.findLast((s) => s.keys === e.key));
  if (!hit) return;
  e.preventDefault();
  typed = "";
  hit.run();
});
