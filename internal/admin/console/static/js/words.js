// What statuses, errors and actions mean, in a sentence each.

export const statuses = ["pending", "parked", "processing", "failed", "manual", "resolved", "archived"];
export const open = ["pending", "parked", "processing", "failed", "manual"];

export const statusMeans = {
  pending: "The relay replays it by itself when its time has come.",
  parked: "It waits behind an earlier letter of its aggregate, so that order holds.",
  processing: "A relay has claimed it and is replaying it now.",
  failed: "Its automatic replays are used up. It waits for you.",
  manual: "Nobody tries it until you say so.",
  resolved: "It is settled.",
  archived: "Retention has moved it to the archive.",
};

// Why an event died, and what usually helps.
const classes = {
  breaker_open: ["The circuit breaker was open, so the relay did not try to publish.", "Nothing to do: it goes out by itself once the breaker closes."],
  attempts_used: ["All attempts to publish failed for a reason that may pass.", "See that the broker is well, then replay."],
  record_too_large: ["The broker, or the relay's own bound, refuses a record of this size.", "Raise the topic's max.message.bytes (and relay.max_record_bytes, if it is the relay's own bound) and replay, or edit the payload."],
  topic_not_allowed: ["The topic's name is not one that may be written to.", "Correct the relay's topic settings and restart it, then replay."],
  undecodable: ["The row could not be read as an event.", "Look at the raw columns. Mend the row at its writer, then discard this letter or resolve it by hand."],
  refused: ["The broker refused the record, and will again.", "Read the error; mend the topic or edit the event, then replay."],
  behind: ["An earlier event of its aggregate is a dead letter; this one waits for it.", "Act on the first letter of the aggregate; this one follows."],
  interrupted: ["A relay before this one began to make a dead letter of it and did not end.", "Nothing to do: it goes out by itself once the breaker lets something through."],
  topic_unavailable: ["The topic could not be made or reached.", "See that the topic exists and has a leader, then replay."],
};

export const classMeans = (name) => classes[name] ?? ["The relay could not publish it.", "Read the error below; replay once its cause is gone."];

// from are the statuses from which an action can begin (dlq/status.go). exact ones
// end a letter, so they are refused if it changed since it was looked at.
export const actions = {
  replay: {
    title: "Replay", done: "The relay was asked to replay it.", from: ["pending", "processing", "failed", "manual"],
    one: "The relay publishes it again, in the order of its aggregate.",
    many: "The relay publishes them again, in the order of each aggregate.",
  },
  release: {
    title: "Release", done: "Released: later events of its aggregate pass it.", from: ["pending", "processing", "failed", "manual"],
    one: "Later events of its aggregate pass it. The letter stays, to be replayed or discarded; a replay is then out of order.",
    many: "Later events of their aggregates pass them. The letters stay, to be replayed or discarded; a replay is then out of order.",
  },
  park: {
    title: "Put aside", done: "Put aside: nobody tries it until you say so.", from: ["pending", "parked", "processing", "failed"],
    one: "Nobody tries it until you say so. Later events of its aggregate keep waiting.",
    many: "Nobody tries them until you say so. Later events of their aggregates keep waiting.",
  },
  resolve: {
    title: "Resolve by hand", exact: true, done: "Resolved by hand.", from: open,
    one: "It was settled elsewhere. It is not published, and what is parked behind it goes on.",
    many: "They were settled elsewhere. They are not published, and what is parked behind them goes on.",
  },
  discard: {
    title: "Discard", exact: true, done: "Discarded.", danger: true, from: open,
    one: "It is never published. What is parked behind it goes on without it. This cannot be undone.",
    many: "They are never published. What is parked behind them goes on without them. This cannot be undone.",
  },
};

// The states of orders and messages: the look of one, and what it means.
export const orderStates = {
  placed: ["processing", "It can be confirmed or cancelled."],
  confirmed: ["parked", "It can be shipped or cancelled."],
  shipped: ["resolved", "It has left; nothing changes it any more."],
  cancelled: ["archived", "It was cancelled; nothing changes it any more."],
};

export const messageStates = {
  received: ["archived", "It was handed in."],
  scheduled: ["parked", "It waits for its time."],
  cancelled: ["archived", "It was taken back and is never published."],
  processing: ["processing", "Its time has come; it is on its way into the outbox."],
  queued: ["pending", "It is in the outbox, and not found in its topic yet."],
  completed: ["resolved", "It is in its topic."],
  retrying: ["pending", "A replay of its dead letter failed; there will be another."],
  dlq_pending: ["pending", "It is a dead letter that waits."],
  dlq_processing: ["processing", "Its dead letter is being replayed."],
  resolved: ["resolved", "Its dead letter was published or settled by hand."],
  failed: ["failed", "The replays of its dead letter are used up."],
  archived: ["archived", "Its dead letter was put away."],
};

// The states of deliveries of reactions, and of their rules.
export const deliveryStates = {
  pending: ["pending", "It is tried again by itself, or somebody asked for it."],
  failed: ["failed", "It was given up. It waits for you."],
  delivered: ["resolved", "The plugin took the event."],
};

export const ruleStates = {
  running: ["resolved", "A process runs it."],
  silent: ["failed", "Its process says nothing any more."],
  stopped: ["archived", "No process runs it."],
};

// orderChanges are what an operator does with an order (orders/state.go). The
// preview, by the order's own rules, decides.
export const orderChanges = {
  confirm: { title: "Confirm", from: ["placed"], done: "Confirmed.", says: "The order is taken. It can then be shipped, and still be cancelled." },
  ship: { title: "Ship", from: ["confirmed"], done: "Shipped.", says: "The order has left. Nothing changes it after that: it cannot be undone.", fields: { carrier: "Carrier, if known", tracking: "Tracking number, if known" } },
  cancel: { title: "Cancel order", from: ["placed", "confirmed"], done: "Cancelled.", danger: true, right: "cancel-order", says: "The order is cancelled for good, and whoever follows it is told by its event. This cannot be undone.", fields: { reason: "Reason, which travels with the event", credit_note: "Credit note, if there is one" } },
};

// Those that move letters to the archive and back are jobs even for one letter.
Object.assign(actions, {
  purge: {
    title: "Purge", job: true, danger: true, from: ["resolved", "archived"],
    one: "It goes to the archive and out of the database; an outline stays. What edits would have published goes with it.",
    many: "They go to the archive and out of the database; outlines stay. What edits would have published goes with them.",
  },
  restore: {
    title: "Restore", job: true, from: ["archived"],
    one: "It comes back as it was: resolved, or, if it never was, manual and released. It stays in the archive too.",
    many: "They come back as they were: resolved, or, if they never were, manual and released. They stay in the archive too.",
  },
  archive: {
    title: "Sweep", job: true, from: [],
    many: "They are older than their retention, and go to the archive; outlines stay. What has expired there is removed.",
  },
});

export const roleMeans = {
  viewer: "may look, and change nothing",
  operator: "may replay, release, put aside and resolve; pause jobs, and resume those that do no more than that; repeat deliveries; confirm, ship and cancel orders; release messages and take them back",
  admin: "may do everything: also discard, edit, purge, restore and cancel",
};
