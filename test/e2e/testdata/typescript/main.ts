// The story of the generated clients with those that openapi-typescript makes:
//
//   node main.js MESSAGES SUBSCRIPTIONS ADMIN ORDERS TOKEN NAME
//
// It prints the ids of the message that it acknowledged and of the dead letter.
import createClient from "openapi-fetch";

import type { paths as Admin } from "./admin.js";
import type { paths as Messages } from "./messages.js";
import type { paths as Orders } from "./orders.js";
import type { paths as Subscriptions } from "./subscriptions.js";

const [messagesURL, subscriptionsURL, adminURL, ordersURL, token, name] = process.argv.slice(2) as [string, string, string, string, string, string];
const sender = createClient<Messages>({ baseUrl: messagesURL });
const queues = createClient<Subscriptions>({ baseUrl: subscriptionsURL });
const operator = createClient<Admin>({ baseUrl: adminURL, headers: { Authorization: `Bearer ${token}` } });
const shop = createClient<Orders>({ baseUrl: ordersURL });
const path = { name };

// ok returns the body of a response that is no problem.
function ok<T>(what: string, r: { data?: T; error?: unknown }): T {
  if (r.data === undefined) throw new Error(`${what}: ${JSON.stringify(r.error)}`);
  return r.data;
}

// send sends a message twice with one key, and receives it.
async function send(n: number): Promise<{ id: string; receipt: string }> {
  const ids = new Set<string>();
  for (let i = 0; i < 2; i++) {
    const sent = await sender.POST("/v1/messages", {
      params: { header: { "Idempotency-Key": `${name}-${n}` } },
      body: { topic: "reminders", key: name, payload: { n } },
    });
    ids.add(ok("send", sent).id);
  }
  const [id] = ids;
  if (ids.size !== 1 || id === undefined) throw new Error(`one key, messages ${[...ids]}`);
  for (;;) {
    const got = await queues.POST("/v1/subscriptions/{name}/receive", { params: { path }, body: { max: 1, wait: "20s" } });
    const [m] = ok("receive", got).messages;
    if (!m) continue;
    if ((m.data as { n?: number }).n !== n || m.event_id !== id || m.receipt === undefined) throw new Error(`sent message ${id}, number ${n}; received ${JSON.stringify(m)}`);
    return { id, receipt: m.receipt };
  }
}

ok("create the subscription", await queues.PUT("/v1/subscriptions/{name}", {
  params: { path },
  body: { topics: ["reminders"], filter: `key == ${JSON.stringify(name)}`, start: "earliest" },
}));
const first = await send(1);
const acked = ok("acknowledge", await queues.POST("/v1/subscriptions/{name}/ack", { params: { path }, body: { receipts: [first.receipt] } }));
const second = await send(2);
const rejected = ok("reject", await queues.POST("/v1/subscriptions/{name}/reject", { params: { path }, body: { receipts: [second.receipt], reason: "a test" } }));
for (const { results: [result] } of [acked, rejected]) {
  if (result?.code !== "ok") throw new Error(`settled with ${result?.code}`);
}
const { dead_letters } = ok("list the dead letters", await operator.GET("/v1/dead-letters", { params: { query: { table: `subscription.${name}` } } }));
for (const l of dead_letters) {
  const params = { path: { event_id: l.event_id }, header: { "Audit-Reason": "INC-311%20never%20needed" } };
  const { dead_letter } = ok("resolve the dead letter", await operator.POST("/v1/dead-letters/{event_id}/resolve", { params }));
  if (dead_letter.status !== "resolved") throw new Error(`resolved, it is ${dead_letter.status}`);
}
const { error } = await queues.POST("/v1/subscriptions/{name}/ack", { params: { path }, body: { receipts: ["no receipt"] } });
if (error?.type !== "urn:scylla-outbox:problem:invalid-receipt") throw new Error(`a receipt that is none: ${JSON.stringify(error)}`);

// One key makes one order, and a change from a former version is refused.
const ids = new Set<string>();
let tag = "";
for (let i = 0; i < 2; i++) {
  const made = await shop.POST("/v1/orders", {
    params: { header: { "Idempotency-Key": `order-${name}` } },
    body: { country: "Finland", currency: "EUR", customer_id: name, lines: [{ sku: "s-1", quantity: 2, unit_price: "1.50" }] },
  });
  ids.add(ok("make an order", made).id);
  tag = made.response.headers.get("ETag") ?? "";
}
const [id] = ids;
if (ids.size !== 1 || id === undefined) throw new Error(`one key, orders ${[...ids]}`);
for (const want of [200, 412]) {
  const { response } = await shop.POST("/v1/orders/{id}/cancel", { params: { path: { id }, header: { "If-Match": tag } }, body: { reason: "changed my mind" } });
  if (response.status !== want) throw new Error(`cancel an order: ${response.status}, want ${want}`);
}
const { orders } = ok("list the orders", await shop.GET("/v1/orders", { params: { query: { customer_id: name } } }));
if (orders.length !== 1 || orders[0]?.id !== id || orders[0].status !== "cancelled") throw new Error(`listed ${JSON.stringify(orders)}`);
console.log([first.id, ...dead_letters.map((l) => l.event_id)].join("\n"));
