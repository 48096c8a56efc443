// Runs before anything is drawn: takes a token out of the address, where it must
// not stay, and sets the theme, so that no page flashes in the wrong one.
(() => {
  const store = (area, key, value) => { try { area.setItem(key, value); } catch { /* storage is off: the tab asks again */ } };
  const hash = new URLSearchParams(location.hash.slice(1));
  const token = hash.get("token");
  if (token !== null) {
    history.replaceState(null, "", location.pathname + location.search);
    if (token) store(sessionStorage, "outbox.token", token.trim());
  }
  let theme = null;
  try { theme = localStorage.getItem("outbox.theme"); } catch { /* as the system has it */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
