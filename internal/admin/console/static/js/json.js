// Shows JSON with line breaks and colours, without reading its values: numbers,
// escapes and doubled keys stay what they are, character for character.
import { h } from "./dom.js";
import { visible } from "./format.js";

const tokens = /"(?:[^"\\\u0000-\u001f]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]|\s+/gy;

// pretty returns the lines of a JSON text, or null if it is not JSON. Each line is
// {indent, parts: [[kind, text]]}.
export function pretty(text) {
  try { JSON.parse(text); } catch { return null; }
  const found = [];
  tokens.lastIndex = 0;
  for (let m; tokens.lastIndex < text.length && (m = tokens.exec(text)); ) if (m[0].trim()) found.push(m[0]);
  const lines = [];
  let line = { indent: 0, parts: [] }, depth = 0;
  const next = () => { lines.push(line); line = { indent: depth, parts: [] }; };
  for (let i = 0; i < found.length; i++) {
    const t = found[i];
    if (t === "{" || t === "[") {
      line.parts.push(["", t]);
      if (found[i + 1] === (t === "{" ? "}" : "]")) { line.parts.push(["", found[++i]]); continue; }
      depth++; next();
    } else if (t === "}" || t === "]") {
      depth--; next(); line.parts.push(["", t]);
    } else if (t === ",") {
      line.parts.push(["", t]); next();
    } else if (t === ":") {
      line.parts.push(["", ": "]);
    } else {
      const kind = t[0] === '"' ? (found[i + 1] === ":" ? "key" : "string") : /[-\d]/.test(t[0]) ? "number" : "word";
      line.parts.push([kind, t]);
    }
  }
  lines.push(line);
  return lines;
}

export const prettyText = (text) => pretty(text)?.map((l) => "  ".repeat(l.indent) + l.parts.map((p) => p[1]).join("")).join("\n") ?? null;

export function prettyView(lines) {
  return lines.map((l) => ["  ".repeat(l.indent), l.parts.map(([kind, t]) => (kind ? h("span", { class: `j-${kind}` }, visible(t)) : t)), "\n"]);
}

// problem returns where a text stops being JSON, or null.
export function problem(text) {
  try { JSON.parse(text); return null; } catch (err) {
    const at = /position (\d+)/.exec(err.message);
    if (!at) return err.message;
    const before = text.slice(0, Number(at[1])).split("\n");
    return `line ${before.length}, column ${before[before.length - 1].length + 1}: ${err.message.replace(/ in JSON at position.*$/, "").replace(/ \(line.*$/, "")}`;
  }
}
