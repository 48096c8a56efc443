// The user of the console: the token of this tab, if there is one, and the rights of its role.
// The token is in sessionStorage and in the Authorization header, so no other site can act in
// the user's name. The cookie of a sign-in at the issuer is out of reach of scripts, and the API
// accepts changes with it from these pages alone.

const key = "outbox.token";
let held = null;

export function token() {
  try { held = sessionStorage.getItem(key) ?? held; } catch { /* held alone */ }
  return held;
}

export function keep(value) {
  held = value;
  try { value ? sessionStorage.setItem(key, value) : sessionStorage.removeItem(key); } catch { /* this page keeps it */ }
}

// Tabs of one browser share the token, so that a link opened in a new tab works.
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("outbox-console") : null;
const asking = new Set();
if (tabs) tabs.onmessage = ({ data }) => {
  if (data?.ask && token()) tabs.postMessage({ token: token() });
  if (data?.token) for (const answer of asking) answer(data.token);
  if (data?.leave) { keep(null); location.reload(); }
};

export function askOtherTabs() {
  if (!tabs) return Promise.resolve(null);
  return new Promise((resolve) => {
    const done = (value) => { asking.delete(done); clearTimeout(timer); resolve(value); };
    const timer = setTimeout(() => done(null), 200);
    asking.add(done);
    tabs.postMessage({ ask: true });
  });
}

export function leave() {
  keep(null);
  tabs?.postMessage({ leave: true });
  location.reload();
}

const ranks = { viewer: 0, operator: 1, admin: 2 };
const needs = {
  replay: "operator", unblock: "operator", suspend: "operator", reopen: "operator", resolve: "operator", pause: "operator", resume: "operator", repeat: "operator", set: "operator",
  confirm: "operator", ship: "operator", "cancel-order": "operator", "deliver-message-now": "operator", "take-back": "operator",
  "pause-subscription": "operator", "resume-subscription": "operator", "seek-subscription": "operator", "redeliver-subscription": "operator", "acknowledge-skips": "operator", "end-lease": "operator", "reject-lease": "operator", "purge-subscription": "admin",
  discard: "admin", edit: "admin", purge: "admin", cancel: "admin",
};

export const me = { name: "", role: "viewer" };
// may reports whether the role has the right. The API decides by itself; this only
// hides what the API would refuse.
export const may = (action) => (ranks[me.role] ?? 0) >= ranks[needs[action] ?? "admin"];
