// Package topics names the topics of events, creates missing topics, and knows their
// partitions.
//
//   - Names: the topic of an event, by its type or by a template.
//   - Catalog: the topics known to exist, their ids and size limits.
//   - Partitions: the number of partitions of each topic, and the gated ones, to which
//     nothing may be sent.
//
// Catalog.mu and Partitions.mu may be taken while the lock of a publish.Publisher is held. No
// other lock is taken while one of them is held, and none is held during requests. Names has
// no lock: its user guards it.
package topics
