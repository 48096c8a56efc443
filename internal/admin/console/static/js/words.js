// The meaning of statuses, errors and actions, one sentence each.

export const statuses = ["pending", "blocked", "processing", "failed", "suspended", "resolved", "archived"];
export const open = ["pending", "blocked", "processing", "failed", "suspended"];

export const statusMeans = {
  pending: "The relay replays it when its next attempt is due.",
  blocked: "An earlier dead letter of its aggregate blocks it, so that the order is kept.",
  processing: "A relay has claimed it and is replaying it now.",
  failed: "Its automatic replays are used up. It needs your decision.",
  suspended: "It is not retried until you replay it.",
  resolved: "It is settled.",
  archived: "Retention has moved it to the archive.",
};

// How dead letters were resolved: in a word and in a sentence.
export const outcomes = {
  replayed: ["published", "Published."], redirected: ["redirected", "Published to another topic."], found: ["found published", "It was in its topic already."],
  unblocked: ["published unblocked", "Published out of order, after later events of its aggregate."], discarded: ["discarded", "Discarded; it is not published."], by_hand: ["by hand", "Settled by hand."],
};

// The cause of each error class, and the usual fix.
const classes = {
  breaker_open: ["The circuit breaker was open, so the relay did not try to publish.", "No action is needed: the relay publishes it once the breaker closes."],
  attempts_used: ["All attempts to publish failed with a transient error.", "Check that the broker is healthy, then replay."],
  record_too_large: ["The record is larger than a limit of the topic or of the relay.", "Read the error: it has the size and names the limit. Raise the limit and replay, or edit the payload."],
  topic_invalid: ["Its topic has no valid name.", "Map the event type to a topic in relay.topics and restart the relay, then replay."],
  topic_not_allowed: ["The relay is not allowed to write to this topic.", "Correct the relay's topic settings and restart it, then replay."],
  undecodable: ["The row could not be read as an event.", "Inspect the raw columns. Fix the writer of the row, then discard this dead letter or resolve it by hand."],
  refused: ["The broker rejected the record permanently.", "Read the error; fix the topic or edit the event, then replay."],
  behind: ["An earlier event of its aggregate is a dead letter and blocks this one.", "Act on the first dead letter of the aggregate; this one follows."],
  interrupted: ["An earlier process of the relay stopped while it wrote this dead letter.", "No action is needed: the relay publishes it once the breaker closes."],
  max_receive: ["Consumers of the subscription failed as often as is allowed, or their leases expired.", "Read the last error, fix the consumer, then replay: it goes to this subscription alone."],
  rejected: ["A consumer rejected the message, or the filter of the subscription could not be evaluated.", "Fix the consumer, the filter or the payload, then replay: it goes to this subscription alone."],
  redelivery: ["An operator delivers the message to the subscription once more; it has not failed.", "No action is needed while a job replays it; otherwise replay or discard it."],
  topic_unavailable: ["The topic could not be created or reached.", "Check that the topic exists and has a leader, then replay."],
};

export const classMeans = (name) => classes[name] ?? ["The relay could not publish it.", "Read the error below; replay once its cause is fixed."];

// from are the statuses from which an action can begin (dlq/status.go). exact ones
// settle a dead letter, so they are refused if it changed since it was read.
export const actions = {
  replay: {
    title: "Replay", done: "Replay requested.", from: ["pending", "processing", "failed", "suspended"],
    one: "The relay publishes it again, in the order of its aggregate.",
    many: "The relay publishes them again, in the order of each aggregate.",
  },
  redirect: {
    title: "Redirect", job: true, topic: true, from: open,
    one: "It is published to another topic, under a new id, in the order of its aggregate. The events blocked behind it follow to their own topics.",
    many: "They are published to another topic, under new ids, in the order of each aggregate. The events blocked behind them follow to their own topics.",
  },
  unblock: {
    title: "Unblock", done: "Unblocked: later events of its aggregate pass it.", from: ["pending", "processing", "failed", "suspended"],
    one: "Later events of its aggregate pass it. The dead letter stays, to be replayed or discarded; a replay is then out of order.",
    many: "Later events of their aggregates pass them. The dead letters stay, to be replayed or discarded; a replay is then out of order.",
  },
  suspend: {
    title: "Suspend", done: "Suspended: it is not retried until you replay it.", from: ["pending", "blocked", "processing", "failed"],
    one: "It is not retried until you replay it. Later events of its aggregate stay blocked.",
    many: "They are not retried until you replay them. Later events of their aggregates stay blocked.",
  },
  resolve: {
    title: "Resolve by hand", exact: true, done: "Resolved by hand.", from: open,
    one: "It was settled elsewhere. It is not published, and the events blocked behind it proceed.",
    many: "They were settled elsewhere. They are not published, and the events blocked behind them proceed.",
  },
  reopen: {
    title: "Reopen", done: "Reopened: it is suspended and blocks nothing.", from: ["resolved"],
    one: "It becomes suspended. It blocks nothing, because its aggregate has continued: a replay is out of order.",
    many: "They become suspended. They block nothing, because their aggregates have continued: a replay is out of order.",
  },
  discard: {
    title: "Discard", exact: true, done: "Discarded.", danger: true, from: open,
    one: "It is never published, unless you reopen it. The events blocked behind it proceed without it.",
    many: "They are never published, unless you reopen them. The events blocked behind them proceed without them.",
  },
};

// The states of orders and messages: the look of one, and what it means.
export const orderStates = {
  placed: ["processing", "It can be confirmed or cancelled."],
  confirmed: ["blocked", "It can be shipped or cancelled."],
  shipped: ["resolved", "It was shipped; its state is final."],
  cancelled: ["archived", "It was cancelled; its state is final."],
};

// The states of events of the outbox.
export const eventStates = {
  waiting: ["pending", "It is stored, and neither in its topic nor a dead letter."],
  published: ["resolved", "It is in its topic."],
  dead_letter: ["failed", "It is a dead letter."],
  unknown: ["archived", "It is no dead letter, and the records could not be read."],
};

// The states of a message in a subscription.
export const progressStates = {
  waiting: ["pending", "It waits for a consumer."],
  processing: ["processing", "A consumer has received it."],
  delayed: ["blocked", "A delivery failed or was delayed; the next one follows."],
  completed: ["resolved", "It was acknowledged."],
  dead_lettered: ["failed", "It is a dead letter of the subscription."],
  skipped: ["archived", "It is not delivered."],
  settled: ["archived", "It is not delivered again."],
  not_selected: ["archived", "Types or filter do not select it."],
  unknown: ["blocked", "Its state cannot be read at the moment."],
};

export const messageStates = {
  received: ["archived", "It was accepted."],
  scheduled: ["blocked", "It waits for its time."],
  cancelled: ["archived", "It was cancelled and is never published."],
  processing: ["processing", "It is due and is being written to the outbox."],
  queued: ["pending", "It is in the outbox and not yet in its topic."],
  completed: ["resolved", "It is in its topic."],
  retrying: ["pending", "A replay of its dead letter failed; another one follows."],
  dlq_pending: ["pending", "It is a pending dead letter."],
  dlq_processing: ["processing", "Its dead letter is being replayed."],
  resolved: ["resolved", "Its dead letter was published or settled by hand."],
  failed: ["failed", "The replays of its dead letter are used up."],
  archived: ["archived", "Its dead letter was archived."],
};

export const subscriptionStates = {
  active: ["resolved", "Messages are delivered to its consumers."],
  paused: ["blocked", "Nothing is delivered until it is resumed."],
  suspended: ["failed", "Nothing is delivered: its destination fails. A probe that succeeds continues."],
  no_process: ["failed", "Nothing is delivered: no process runs it. Start outbox subscriptions."],
  unknown: ["archived", "Its state cannot be read at the moment."],
};

// orderChanges are an operator's changes of an order (orders/state.go). The
// preview, by the order's own rules, decides.
export const orderChanges = {
  confirm: { title: "Confirm", from: ["placed"], done: "Confirmed.", says: "The order is confirmed. It can then be shipped, and still be cancelled." },
  ship: { title: "Ship", from: ["confirmed"], done: "Shipped.", says: "The order is shipped. This is final and cannot be undone.", fields: { carrier: "Carrier, if known", tracking: "Tracking number, if known" } },
  cancel: { title: "Cancel order", from: ["placed", "confirmed"], done: "Cancelled.", danger: true, right: "cancel-order", says: "The order is cancelled, and its event notifies the subscribers. This cannot be undone.", fields: { reason: "Reason, which travels with the event", credit_note: "Credit note, if there is one" } },
};

// Actions that move dead letters to the archive and back are jobs even for one dead letter.
Object.assign(actions, {
  purge: {
    title: "Purge", job: true, danger: true, from: ["resolved", "archived"],
    one: "It moves to the archive, with its edits; the database keeps an outline.",
    many: "They move to the archive, with their edits; the database keeps outlines.",
  },
  restore: {
    title: "Restore", job: true, from: ["archived"],
    one: "It is restored with its status resolved or, if it was not resolved, suspended and unblocked. The archive keeps its copy.",
    many: "They are restored with their status resolved or, if they were not resolved, suspended and unblocked. The archive keeps its copies.",
  },
  archive: {
    title: "Sweep", job: true, from: [],
    many: "They are older than their retention and move to the archive; the database keeps outlines. Expired objects of the archive are removed.",
  },
});

export const roleMeans = {
  viewer: "may read everything and change nothing",
  operator: "may replay, unblock, suspend, resolve and reopen; pause jobs, and resume jobs of these actions; confirm, ship and cancel orders; deliver and cancel messages",
  admin: "may do everything, including discard, edit, purge, restore and cancel",
};
