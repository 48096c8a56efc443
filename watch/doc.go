// Package watch shows events to whoever looks on, as they come to their topics:
// over a WebSocket, or as server-sent events.
//
// A Hub reads each watched topic once, from its end, without a consumer group,
// and hands every event to those who subscribed. Each has a bounded buffer: one
// who reads too slowly is told and dropped, and costs the others nothing. A
// position, offsets by topic and partition, goes with each event; who comes back
// with the last one misses nothing and sees nothing twice. Who names no topics
// follows all that may be watched, also those that come later.
package watch
