// Package topics names the topics of events, creates missing topics, and knows their
// partitions.
//
//   - Names: the topic of an event, by its type or by a template.
//   - Catalog: the topics known to exist, their ids and size limits, and the topics that are
//     expected to exist, because an earlier process published to them.
//   - Partitions: the number of partitions of each topic, and the gated ones, to which
//     nothing may be sent.
//
// It relies on topic ids to recognize a topic that somebody else has deleted and created again.
// Brokers without ids (Redpanda before 25.3) show only the topics that this process creates;
// records then go to the new topic, with nothing in the log.
//
// No other lock is taken while Catalog.mu or Partitions.mu is held, and none is held during requests. Names has
// no lock: its user guards it.
package topics
