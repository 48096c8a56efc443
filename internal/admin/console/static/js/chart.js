// Small line charts in SVG, drawn by hand: two series, two thousand points at most.
import { h } from "./dom.js";
import { clock, count, stamp } from "./format.js";

const W = 460, H = 150, left = 36, right = 8, top = 8, bottom = 22;

// chart draws series of {name, colour, points: [[ms, value]]} over [from, to].
// label is the text for screen readers. Between points further apart than gap, in ms, there
// is no line.
export function chart({ series, from, to, label, unit = "", gap = Infinity }) {
  const most = nice(Math.max(1, ...series.flatMap((s) => s.points.map((p) => p[1]))));
  const x = (t) => left + ((t - from) / Math.max(1, to - from)) * (W - left - right);
  const y = (v) => H - bottom - (v / most) * (H - top - bottom);
  const grid = [0, most / 2, most].map((v) => [
    h("line", { x1: left, x2: W - right, y1: y(v), y2: y(v), class: "grid" }),
    h("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, tick(v)),
  ]);
  const times = [0, 1, 2].map((i) => from + ((to - from) * i) / 2);
  const axis = times.map((t, i) => h("text", { x: x(t), y: H - 5, "text-anchor": i === 0 ? "start" : i === 2 ? "end" : "middle" }, to - from > 3600_000 ? stamp(t).slice(5, 16) : clock(t)));
  const lines = series.map((s, i) => {
    const pts = s.points.filter((p) => p[0] >= from);
    if (!pts.length) return null;
    const last = pts[pts.length - 1], parts = [];
    pts.forEach((p, j) => { if (!j || p[0] - pts[j - 1][0] > gap) parts.push([p]); else parts[parts.length - 1].push(p); });
    const lineOf = (part) => part.map((p, j) => `${j ? "L" : "M"}${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join("");
    const path = parts.map(lineOf).join("");
    return [
      s.area && h("path", { class: `area s-${s.colour}`, d: parts.map((part) => `${lineOf(part)}L${x(part[part.length - 1][0]).toFixed(1)},${y(0)}L${x(part[0][0]).toFixed(1)},${y(0)}Z`).join("") }),
      h("path", { class: `line s-${s.colour}${i ? " dashed" : ""}`, d: path }),
      h("circle", { class: `s-${s.colour}`, cx: x(last[0]), cy: y(last[1]), r: 3 }),
    ];
  });
  return h("figure", { class: "chart" },
    h("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label }, grid, axis, lines),
    series.length > 1 && h("figcaption", null, series.map((s, i) => h("span", { class: "key" },
      h("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" }, h("line", { x1: 0, x2: 18, y1: 4, y2: 4, class: `line s-${s.colour}${i ? " dashed" : ""}` })),
      s.name, s.points.length ? h("b", null, `${format(s.points[s.points.length - 1][1])}${unit}`) : null))));
}

const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const tick = (v) => compact.format(v);
const format = (v) => (v >= 100 || Number.isInteger(v) ? count(Math.round(v)) : v.toFixed(1));

// nice is the next round number.
function nice(v) {
  const p = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 5, 10].map((m) => m * p).find((m) => m >= v - 1e-9);
}
