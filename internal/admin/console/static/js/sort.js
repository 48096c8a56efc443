// Tables whose rows a click on the name of a column sorts.
import { h } from "./dom.js";

// sorter is the order of a table's rows until its page is left: that of the server, until
// a column is chosen. Rows of other pages are not sorted with them, as the columns say. A second click reverses the order, a third one ends it. redraw draws
// the table.
export function sorter(redraw) {
  let by = null, sign = 1;
  const choose = (name) => {
    if (by !== name) { by = name; sign = 1; }
    else if (sign === 1) sign = -1;
    else by = null;
    redraw();
  };

  return {
    // head returns the cells of the table's head. A column is its name, the function that
    // returns the value of a row, if rows can be sorted by it, and whether it has numbers.
    head: (columns) => columns.map(([name, of, num]) => h("th", { scope: "col", class: num ? "num" : null, "aria-sort": by === name ? (sign === 1 ? "ascending" : "descending") : null },
      of ? h("button", { type: "button", class: "sort", title: "Sort the rows of this page", "data-key": `sort-${name}`, onclick: () => choose(name) }, name, h("span", { "aria-hidden": "true" }, by !== name ? "" : sign === 1 ? " ↑" : " ↓")) : name)),
    // rows returns the rows in their order; a row without a value comes last.
    rows(all, columns) {
      const of = columns.find(([name]) => name === by)?.[1];
      if (!of) return all;
      const none = (v) => v === null || v === undefined || v === "";
      return all.toSorted((x, y) => {
        const a = of(x), b = of(y);
        if (none(a) || none(b)) return Number(none(a)) - Number(none(b));
        return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
      });
    },
  };
}
