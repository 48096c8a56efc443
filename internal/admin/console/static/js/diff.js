// The difference of two texts by lines: the longest common subsequence, after
// the equal lines at both ends are removed.
import { h } from "./dom.js";
import { visible } from "./format.js";

const most = 2_000_000; // cells of the table; beyond, the middle is shown as replaced

// diff returns [[op, line]] with op "=", "-" or "+".
export function diff(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end);
  return [...a.slice(0, start).map((l) => ["=", l]), ...middle(x, y), ...a.slice(a.length - end).map((l) => ["=", l])];
}

function middle(x, y) {
  if (x.length * y.length > most) return [...x.map((l) => ["-", l]), ...y.map((l) => ["+", l])];
  const w = y.length + 1, table = new Uint32Array((x.length + 1) * w);
  for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) {
    table[i * w + j] = x[i] === y[j] ? table[(i + 1) * w + j + 1] + 1 : Math.max(table[(i + 1) * w + j], table[i * w + j + 1]);
  }
  const out = [];
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { out.push(["=", x[i]]); i++; j++; }
    else if (i < x.length && (j >= y.length || table[(i + 1) * w + j] >= table[i * w + j + 1])) out.push(["-", x[i++]]);
    else out.push(["+", y[j++]]);
  }
  return out;
}

const context = 3;

// diffView shows changes with a few lines around them.
export function diffView(changes) {
  const near = new Set();
  changes.forEach(([op], i) => { if (op !== "=") for (let j = i - context; j <= i + context; j++) near.add(j); });
  if (!near.size) return h("p", { class: "muted" }, "Nothing is changed yet.");
  const out = [];
  let skipped = false;
  changes.forEach(([op, line], i) => {
    if (!near.has(i)) { skipped = true; return; }
    if (skipped) out.push(h("span", { class: "d-skip" }, "⋯\n"));
    skipped = false;
    const name = { "=": "", "-": "removed", "+": "added" }[op];
    out.push(h("span", { class: `d-line d-${name || "same"}` }, name && h("span", { class: "hidden-text" }, `${name}: `), `${op === "=" ? " " : op} ${visible(line)}\n`));
  });
  return h("pre", { class: "code diff", tabindex: "0", "aria-label": "What is changed" }, out);
}
