// Addresses of pages. Every page, filter and selection of a tab is in the
// address, so that a link shows a colleague the same.

const base = "/console";
const routes = [];
let show = () => {}, shown = "";

// route maps a pattern such as "/topics/:name" to a page. :uuid is an id of that form only: the API may have
// something else at another word.
export function route(pattern, page) {
  routes.push([new RegExp(`^${pattern.replace(":uuid", `(?<id>${uuid})`).replace(/:(\w+)/g, "(?<$1>[^/]+)")}/?$`), page]);
}
const uuid = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";

export function start(onPage) {
  show = onPage;
  // A link within the page, such as the one to skip the bar, changes no page.
  addEventListener("popstate", () => { if (shown !== location.pathname + location.search) open(false); });
  document.addEventListener("click", (e) => {
    const a = e.target.closest?.("a[href]");
    if (!a || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey || a.target || a.origin !== location.origin) return;
    if (a.pathname === location.pathname && a.search === location.search && a.hash) return;
    if (!(a.pathname === base || a.pathname.startsWith(`${base}/`)) || a.pathname.startsWith(`${base}/static/`)) return;
    e.preventDefault();
    go(a.pathname.slice(base.length) + a.search);
  });
  open(true);
}

export function go(path, { replace = false } = {}) {
  const to = base + (path === "/" ? "/" : path);
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  open(false);
}

export function search(query) {
  const p = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v) p.set(k, v);
  const s = p.toString();
  return s ? `?${s}` : "";
}

export const href = (path, query) => base + path + (query ? search(query) : "");
export const query = () => Object.fromEntries(new URLSearchParams(location.search));

function open(first) {
  shown = location.pathname + location.search;
  const path = location.pathname.slice(base.length) || "/";
  for (const [re, page] of routes) {
    const m = re.exec(path);
    if (m) {
      const params = Object.fromEntries(Object.entries(m.groups ?? {}).map(([k, v]) => [k, decoded(v)]));
      return show(page, params, first);
    }
  }
  return show(null, { path }, first);
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
