// Runs before anything is drawn: takes a token out of the address, where it must
// not stay, and sets the theme, so that no page flashes in the wrong one.
(() => {
  const store = (area, key, value) => { try { area.setItem(key, value); } catch { /* storage is off: the tab asks again */ } };
  // take keeps the token of the address, and reports whether there is one.
  const take = () => {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token === null) return false;
    history.replaceState(null, "", location.pathname + location.search);
    if (token) store(sessionStorage, "outbox.token", token.trim());
    return true;
  };
  take();
  // A link that is opened in a tab with the console changes only the hash. The page starts
  // again as the user of the new token.
  addEventListener("hashchange", () => { if (take()) location.reload(); });
  let theme = null;
  try { theme = localStorage.getItem("outbox.theme"); } catch { /* as the system has it */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
