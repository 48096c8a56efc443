// Edit and replay: a new event takes the place of the old one, which stays as it was.
import { api } from "../api.js";
import { binary as isBinary } from "../content.js";
import { dialog, toast } from "../dialog.js";
import { diff, diffView } from "../diff.js";
import { fill, h } from "../dom.js";
import { plural, short } from "../format.js";
import { problem, prettyText } from "../json.js";
import { empty, failed, loading, panel, sentence } from "../parts.js";
import { go, href } from "../router.js";
import { may } from "../session.js";
import { editable } from "./deadletter.js";

export function edit(ctx) {
  const id = ctx.params.id;
  ctx.title(`Edit ${short(id)}`);
  fill(ctx.el, h("h1", { tabindex: "-1" }, "Edit and replay"), loading("the dead letter"));
  const read = async () => {
    try {
      const l = await api.deadLetter(id, ctx.signal);
      const back = h("a", { class: "button", href: href(`/dead-letters/${id}`) }, "Back to the dead letter");
      if (!may("edit")) return fill(ctx.el, h("h1", { tabindex: "-1" }, "Edit and replay"), empty("Your role may not edit dead letters.", "The role admin is required.", back));
      if (!editable(l)) return fill(ctx.el, h("h1", { tabindex: "-1" }, "Edit and replay"), empty(`The dead letter is ${l.status}.`, "Only a dead letter that is neither settled nor being replayed can be edited.", back));
      return draw(l);
    } catch (err) {
      return ctx.signal.aborted ? undefined : fill(ctx.el, h("h1", { tabindex: "-1" }, "Edit and replay"), failed(err, read));
    }
  };

  function draw(l) {
    const from = l.edit ?? l; // what is published as it stands: the last edit, or the event as it was
    const binary = isBinary(from);
    const original = binary ? from.payload_base64 : from.payload_text ?? "";
    const json = !binary && problem(original) === null;
    const problems = h("div", { id: "problems", role: "status", "aria-live": "polite" });
    const changes = h("div", { class: "stack tight" });
    const text = h("textarea", { class: "mono editor", rows: 22, spellcheck: "false", value: original, "aria-label": binary ? "Payload, base64" : "Payload", "aria-describedby": "problems", oninput: changed, "data-key": "payload" });
    const type = h("input", { type: "text", value: from.content_type ?? "", oninput: changed, "data-key": "type" });
    const rows = Object.entries(from.headers ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => [k, v]);
    const headers = h("div", { class: "stack tight" });
    const ask = h("button", { type: "button", class: "button primary", disabled: true, onclick: confirm, "data-key": "ask" }, "Replay as edited…");
    let timer, latest = 0;

    const before = headerText(from.headers ?? {}, from.content_type), asMap = () => Object.fromEntries(rows.filter(([k]) => k.trim()).map(([k, v]) => [k.trim(), v]));
    const same = () => text.value === original && headerText(asMap(), type.value) === before;
    const doubled = () => new Set(rows.map(([k]) => k.trim()).filter(Boolean)).size < rows.filter(([k]) => k.trim()).length;

    const send = (reason, dry) => api.edit(id, { ...(binary ? { payload_base64: text.value.trim() } : { payload_text: text.value }), content_type: type.value, headers: asMap(), dry_run: dry }, l.etag ?? `"${l.version}"`, reason);

    function changed() {
      ask.disabled = true;
      clearTimeout(timer);
      timer = setTimeout(check, 350);
      fill(changes, h("h3", null, "Payload"), diffView(diff(shape(original), shape(text.value))), h("h3", null, "Headers and content type"), diffView(diff(before, headerText(asMap(), type.value))));
    }
    // Where both are JSON, what only changed in white space is no change to look at.
    const shape = (t) => (json && problem(text.value) === null ? prettyText(t) ?? t : t);

    async function check() {
      const mine = ++latest;
      if (same()) return fill(problems, h("p", { class: "muted" }, "Nothing is changed. To replay it without changes, use Replay on its page."));
      if (doubled()) return fill(problems, list(["Two headers have the same name."]));
      const bad = json ? problem(text.value) : null;
      if (bad) return fill(problems, list([`The payload is not valid JSON: ${bad}`]));
      fill(problems, h("p", { class: "muted" }, "Checking…"));
      try {
        const r = await send("", true);
        if (mine !== latest || ctx.signal.aborted) return undefined;
        const wrong = r.problems;
        ask.disabled = wrong.length > 0;
        return fill(problems, wrong.length ? list(wrong) : h("p", { class: "ok-text" }, r.schema ? "It matches the schema of its event type." : "It can be replayed. No schema is registered for its event type, so its content is not validated."));
      } catch (err) {
        if (mine !== latest || ctx.signal.aborted) return undefined;
        if (err.status === 412) return moved();
        return fill(problems, list(err.errors.length ? err.errors : [sentence(err.message)]));
      }
    }

    function moved() {
      ask.disabled = true;
      fill(problems, h("p", { class: "danger-text", role: "alert" }, "Another user has changed the dead letter. Your text is still here; copy what you need, then read the dead letter again."),
        h("div", null, h("button", { type: "button", class: "button", onclick: read, "data-key": "reread" }, "Reload and drop my changes")));
    }

    function headerRows() {
      fill(headers, rows.map((r, i) => h("div", { class: "row header-row" },
        h("input", { type: "text", class: "mono", value: r[0], "aria-label": `Name of header ${i + 1}`, "data-key": `hk-${i}`, oninput: (e) => { r[0] = e.target.value; changed(); } }),
        h("input", { type: "text", class: "mono grow", value: r[1], "aria-label": `Value of header ${i + 1}`, "data-key": `hv-${i}`, oninput: (e) => { r[1] = e.target.value; changed(); } }),
        h("button", { type: "button", class: "button quiet square", "aria-label": `Remove header ${r[0] || i + 1}`, onclick: () => { rows.splice(i, 1); headerRows(); changed(); } }, "✕"))),
      h("div", null, h("button", { type: "button", class: "button", "data-key": "add", onclick: () => { rows.push(["", ""]); headerRows(); headers.querySelector(`[data-key="hk-${rows.length - 1}"]`).focus(); } }, "Add a header")));
    }

    function confirm() {
      const reason = h("input", { type: "text", maxlength: 500, required: true, autocomplete: "off", autofocus: true, oninput: () => { yes.disabled = !reason.value.trim(); }, "data-key": "reason" });
      const trouble = h("p", { class: "danger-text", role: "alert" });
      const yes = h("button", { type: "submit", class: "button primary", disabled: true, "data-key": "yes" }, "Replay as edited");
      const box = dialog({
        title: "Replay as edited", wide: true,
        content: h("div", { class: "stack" }, h("p", { class: "callout" }, "A new event with a new id replaces this one in its aggregate and is published. The original is kept unchanged and linked to it."),
          diffView(diff(shape(original), shape(text.value))), headerText(asMap(), type.value) !== before && diffView(diff(before, headerText(asMap(), type.value))), h("label", null, "Reason", reason), trouble),
        buttons: [h("span", { class: "grow small muted" }, "Recorded in the audit trail with your name."), h("button", { type: "button", class: "button", onclick: () => box.close() }, "Cancel"), yes],
      });
      box.el.querySelector("form").addEventListener("submit", async (e) => {
        e.preventDefault();
        if (yes.disabled) return;
        yes.disabled = true;
        try {
          const r = await send(reason.value.trim(), false);
          toast("The edited event is being published.", { link: href(`/events/${r.new_event_id}`), label: "Show it" });
          box.close();
          go(`/dead-letters/${id}`);
        } catch (err) {
          if (err.status === 412) { box.close(); return moved(); }
          fill(trouble, sentence(err.message), err.errors.map((x) => [h("br"), [x.location, x.message].filter(Boolean).join(": ")]));
          yes.disabled = false;
        }
        return undefined;
      });
    }

    const tidy = json && h("button", { type: "button", class: "button", "data-key": "tidy", onclick: () => { const p = prettyText(text.value); if (p) { text.value = p; changed(); } } }, "Line breaks");
    headerRows();
    fill(ctx.el, h("div", { class: "stack" },
      h("header", null, h("p", { class: "crumbs small" }, h("a", { href: href("/dead-letters") }, "Dead letters"), " / ", h("a", { class: "mono", href: href(`/dead-letters/${id}`) }, id), " / edit"), h("h1", { tabindex: "-1" }, `Edit and replay: ${l.event_type}`)),
      h("div", { class: "edit" },
        h("div", { class: "stack" }, panel(binary ? "Payload, base64" : "Payload", { aside: tidy }, text), panel("Headers", { aside: h("span", { class: "small muted" }, plural(rows.length, "header")) }, h("label", null, "Content type", type), headers)),
        h("div", { class: "stack sticky" }, panel("Changes", {}, changes), panel("Validation", {}, problems, h("div", { class: "row" }, ask, h("a", { class: "button quiet", href: href(`/dead-letters/${id}`) }, "Cancel")))))));
    changed();
  }
  read();
}

const headerText = (map, type) => [`content-type: ${type ?? ""}`, ...Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => `${k}: ${v}`)].join("\n");

const list = (all) => h("ul", { class: "problems" }, all.map((p) => h("li", { class: "break" }, typeof p === "string" ? p : [(p.location || p.path) && h("code", null, p.location || p.path), " ", p.message])));
