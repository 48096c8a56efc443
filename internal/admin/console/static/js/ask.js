// A change of one order or message: preview, reason, confirmation.
import { h, fill } from "./dom.js";
import { dialog, toast } from "./dialog.js";
import { loading, sentence } from "./parts.js";

// ask opens the dialog. look gives {ok, view}: whether the change is possible, and
// what to show; form, if there is one, is what else is asked; make(reason) makes it,
// and said then says so.
// done is called after it was made, with its result, and when somebody else was first. first is
// the field that is filled in first, by default the reason. ready, if there is one, tells whether the
// form is complete: call what ask returns when that changes.
export function ask(change) {
  const { title, wide, word, danger, look, form, first, ready = () => true, make, done } = change;
  const body = h("div", { class: "stack" }, loading("the preview"));
  let possible = false, busy = false;
  const reason = h("input", { type: "text", maxlength: 500, autocomplete: "off", required: true, placeholder: "ticket, requester, purpose", oninput: update, "data-key": "reason", autofocus: true });
  const trouble = h("p", { class: "danger-text", role: "alert" });
  const yes = h("button", { type: "submit", class: `button primary ${danger ? "danger" : ""}`, disabled: true, "data-key": "yes" }, word);
  const box = dialog({
    title, wide, content: body,
    buttons: [h("span", { class: "grow small muted" }, "Recorded in the audit trail with your name."), h("button", { type: "button", class: "button", onclick: () => box.close() }, "Close"), yes],
  });
  box.el.querySelector("form").addEventListener("submit", submit);
  read();

  async function read() {
    try {
      const { ok, view } = await look();
      possible = ok;
      fill(body, view, ok && form, ok && h("label", null, "Reason", reason), trouble);
      if (ok) (first ?? reason).focus();
    } catch (err) {
      fill(body, h("p", { class: "danger-text", role: "alert" }, `The preview failed: ${sentence(err.message)}`), h("p", { class: "muted" }, "Nothing was changed. The action needs a preview."), again("Try again"));
    }
    update();
  }

  function again(text) {
    return h("div", null, h("button", { type: "button", class: "button", "data-key": "look", onclick: () => { fill(trouble); fill(body, loading("the preview")); read(); } }, text));
  }

  function update() { yes.disabled = busy || !possible || !ready() || !reason.value.trim(); }

  async function submit(e) {
    e.preventDefault();
    if (yes.disabled) return;
    busy = true; update(); fill(trouble);
    try {
      const made = await make(reason.value.trim());
      toast(change.said);
      box.close();
      done(made);
    } catch (err) {
      // After a conflict the user reads the new state and decides again.
      possible = ![409, 412].includes(err.status);
      fill(trouble, h("b", null, err.body?.outcome_unknown ? "Unknown: " : "Refused: "), sentence(err.message), ...err.errors.map((x) => [h("br"), [x.location, x.message].filter(Boolean).join(": ")]));
      if (!possible) { trouble.append(again("Reload")); done(); }
    }
    busy = false; update();
  }

  return update;
}
