// Package stream sends events to clients as they arrive in their topics, over a WebSocket
// or as server-sent events.
//
// A Hub reads each topic once, from its end, without a consumer group, and passes every
// event to its subscribers. Each subscriber has a bounded buffer: one that reads too
// slowly receives an error and is disconnected, and does not delay the others. Each event
// carries a position, the offsets by topic and partition; a client that resumes from its
// last position misses nothing and receives nothing twice. A client that names no topics
// follows all allowed topics, also topics that are created later.
package stream
