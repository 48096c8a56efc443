// Client of the API beside the console: JSON, a bearer token or the session cookie, problem+json.
import { token } from "./session.js";
import { elapsed, learn } from "./time.js";

// Problem is an error response; status 0 means that there was no response.
class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.title || (status ? `the API answered ${status}` : "the API does not answer"));
    this.status = status;
    this.errors = body?.errors ?? [];
    this.body = body;
  }
}

const patience = 30_000;
let onUnauthorized = () => {};
export const whenUnauthorized = (f) => { onUnauthorized = f; };

export async function open(path, { method = "GET", query, body, headers, signal } = {}) {
  const url = new URL(path, location.origin);
  for (const [k, v] of Object.entries(query ?? {})) if (v !== undefined && v !== null && v !== "") url.searchParams.set(k, v);
  const sent = elapsed();
  let res;
  try {
    res = await fetch(url, {
      method, signal, cache: "no-store", credentials: "same-origin", redirect: "error",
      headers: { Accept: "application/json, application/problem+json", ...(token() ? { Authorization: `Bearer ${token()}` } : {}), ...(body ? { "Content-Type": "application/json" } : {}), ...headers },
      body: body ? JSON.stringify(body) : undefined,
    });
  } catch (err) {
    if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw err;
    throw new Problem(0, { detail: signal?.reason?.name === "TimeoutError" ? `the API did not answer within ${patience / 1000} s` : "the API does not answer" });
  }
  learn(res.headers.get("Date"), sent);
  if (res.ok) return res;
  const problem = new Problem(res.status, await res.json().catch(() => null));
  if (res.status === 401) onUnauthorized(problem);
  throw problem;
}

async function call(path, options = {}) {
  const limit = AbortSignal.timeout(patience);
  const res = await open(path, { ...options, signal: options.signal ? AbortSignal.any([options.signal, limit]) : limit });
  const value = res.status === 204 ? {} : await res.json();
  const etag = res.headers.get("ETag");
  if (etag && value && typeof value === "object") Object.defineProperty(value, "etag", { value: etag });
  return value;
}

const id = encodeURIComponent;
const get = (path, query, signal) => call(path, { query, signal });
const post = (path, body, headers) => call(path, { method: "POST", body: body ?? {}, headers });

// A header takes no more than ASCII. A dry run has no reason.
const why = (reason) => (reason ? { "Audit-Reason": id(reason) } : {});

export const api = {
  me: () => get("/v1/me"),
  stats: (s) => get("/v1/dead-letters/stats", null, s),
  groups: (s) => get("/v1/dead-letters/groups", null, s),
  status: (s) => get("/v1/status", null, s),
  history: (since, s) => get("/v1/history", { since }, s),
  recentHistory: (s) => get("/v1/history", { live: true }, s),
  deadLetters: (query, s) => get("/v1/dead-letters", query, s),
  deadLetter: (event, s) => get(`/v1/dead-letters/${id(event)}`, null, s),
  events: (query, s) => get("/v1/events", query, s),
  aggregate: (aggregate, cursor, s) => get(`/v1/aggregates/${id(aggregate)}`, { cursor }, s),
  event: (event, s) => get(`/v1/events/${id(event)}`, null, s),
  act: (event, action, body, etag, reason) => post(`/v1/dead-letters/${id(event)}/${action}`, body, { ...(etag ? { "If-Match": etag } : {}), ...why(reason) }),
  edit: (event, body, etag, reason) => post(`/v1/dead-letters/${id(event)}/edit`, body, { "If-Match": etag, ...why(reason) }),
  preview: (body) => post("/v1/dead-letters/preview", body),
  archives: (query, s) => get("/v1/archives", query, s),
  jobs: (query, s) => get("/v1/jobs", query, s),
  job: (job, s) => get(`/v1/jobs/${id(job)}`, null, s),
  startJob: (body, reason) => post("/v1/jobs", body, why(reason)),
  changeJob: (job, action, reason) => call(`/v1/jobs/${id(job)}/${action}`, { method: "POST", headers: why(reason) }),
  orders: (query, s) => get("/v1/orders", query, s),
  order: (order, s) => get(`/v1/orders/${id(order)}`, null, s),
  orderEvents: (order, query, s) => get(`/v1/orders/${id(order)}/events`, query, s),
  orderPreview: (order, change, s) => get(`/v1/orders/${id(order)}/preview`, { change }, s),
  changeOrder: (order, change, body, etag, reason) => post(`/v1/orders/${id(order)}/${change}`, body, { "If-Match": etag, ...why(reason) }),
  messages: (query, s) => get("/v1/messages", query, s),
  message: (message, s) => get(`/v1/messages/${id(message)}`, null, s),
  messageContent: (message, s) => get(`/v1/messages/${id(message)}/content`, null, s),
  deliverMessageNow: (message, reason) => post(`/v1/messages/${id(message)}/deliver-now`, {}, why(reason)),
  takeBack: (message, reason) => call(`/v1/messages/${id(message)}`, { method: "DELETE", headers: why(reason) }),
  many: (kind, body, reason) => post(`/v1/messages/${kind}`, body, why(reason)),
  subscriptions: (s) => get("/v1/subscriptions", null, s),
  subscriptionStatus: (name, s) => get(`/v1/subscriptions/${id(name)}/status`, null, s),
  leases: (name, s) => get(`/v1/subscriptions/${id(name)}/leases`, { limit: 50 }, s),
  changeSubscription: (name, change, body, reason) => call(`/v1/subscriptions/${id(name)}/${change}`, { method: "POST", body, headers: why(reason) }),
  redeliver: (name, body, key, reason) => post(`/v1/subscriptions/${id(name)}/redeliver`, body, { ...(key ? { "Idempotency-Key": key } : {}), ...why(reason) }),
  endLease: (name, lease, reason) => call(`/v1/subscriptions/${id(name)}/leases/${id(lease)}`, { method: "DELETE", headers: why(reason) }),
  rejectLease: (name, lease, reason) => call(`/v1/subscriptions/${id(name)}/leases/${id(lease)}/reject`, { method: "POST", headers: why(reason) }),
  topics: (s) => get("/v1/topics", null, s),
  records: (topic, query, s) => get(`/v1/topics/${id(topic)}/records`, { text: true, ...query }, s),
  audit: (query, s) => get("/v1/audit", query, s),
};

// signOut ends the session of the cookie, which no script can remove.
export async function signOut() {
  const res = await fetch("/console/sign-out", { method: "POST" });
  if (!res.ok) throw new Problem(res.status, null);
}

export async function settings() {
  const res = await fetch("/console/static/settings.json");
  return res.ok ? res.json() : {};
}
