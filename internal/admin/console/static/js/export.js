// The download of a filtered list of dead letters, which is read page by page.
import { api } from "./api.js";
import { dialog, toast } from "./dialog.js";
import { fill, h } from "./dom.js";
import { count, plural } from "./format.js";
import { sentence } from "./parts.js";
import { serverTime } from "./time.js";

const size = 500, most = 20 * size; // dead letters of a page, and of a file

// columns are those of a file for spreadsheets.
const columns = ["event_id", "status", "resolved_by", "error_class", "error_excerpt", "event_type", "aggregate_id", "sequence", "topic", "table", "priority", "tags", "attempts", "replays", "first_failed_at", "last_failed_at", "next_attempt"];
const contents = ["content_type", "payload_text", "payload_base64"];

// exportList asks for the form of the file and saves what query finds.
export function exportList(query) {
  let open = true;
  const form = h("select", { name: "form", "data-key": "form" }, h("option", { value: "json" }, "JSON"), h("option", { value: "csv" }, "CSV, for spreadsheets"));
  const payloads = h("input", { type: "checkbox", "data-key": "with-payload" });
  const says = h("p", { class: "small muted", role: "status" });
  const yes = h("button", { type: "submit", class: "button primary", "data-key": "yes" }, "Download");
  const box = dialog({
    title: "Export dead letters",
    content: h("div", { class: "stack" }, h("p", null, `All that match the filter, the newest ${count(most)} at most.`), h("label", null, "Form", form), h("label", { class: "check" }, payloads, " With payloads, as the events had them"), says),
    buttons: [h("span", { class: "grow" }), h("button", { type: "button", class: "button", onclick: () => box.close() }, "Cancel"), yes],
    onclose: () => { open = false; },
  });
  box.el.querySelector("form").addEventListener("submit", async () => {
    if (yes.disabled) return;
    yes.disabled = true;
    try {
      const all = [];
      let cursor;
      do {
        const page = await api.deadLetters({ ...query, limit: size, cursor, with_payload: payloads.checked || null });
        all.push(...page.dead_letters);
        cursor = page.next;
        fill(says, `${plural(all.length, "dead letter")} read…`);
      } while (open && cursor && all.length < most);
      if (!open) return;
      save(form.value, form.value === "csv" ? csv(all, payloads.checked ? [...columns, ...contents] : columns) : `${JSON.stringify({ items: all, next: cursor }, null, 1)}\n`);
      box.close();
      toast(`${plural(all.length, "dead letter")} exported${cursor ? "; there are older ones" : ""}.`);
    } catch (err) {
      fill(says, h("span", { class: "danger-text" }, `The export failed: ${sentence(err.message)}`));
      yes.disabled = false;
    }
  });
}

// csv is a table by RFC 4180. A value that a spreadsheet would take for a formula begins with an apostrophe.
export function csv(rows, names) {
  const cell = (v) => {
    const text = Array.isArray(v) ? v.join(" ") : String(v ?? ""), safe = /^[=+\-@\t\r]/.test(text) && typeof v !== "number" ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [names, ...rows.map((r) => names.map((n) => r[n]))].map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

function save(form, text) {
  const url = URL.createObjectURL(new Blob([text], { type: form === "csv" ? "text/csv;charset=utf-8" : "application/json" }));
  const a = h("a", { href: url, download: `dead-letters-${new Date(serverTime()).toISOString().slice(0, 19).replaceAll(":", "")}.${form}` });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
