// Package hint lets a writer tell the relays that it has just committed an
// event, so that they read its CDC stream at once.
//
// A hint is the token of an aggregate. Hints travel in UDP datagrams, are
// gathered for at most a millisecond, and are best effort: one that is lost,
// late, or never sent costs latency and nothing else, because a relay reads all
// streams now and then anyway. A datagram carries an HMAC-SHA256 under a key
// that writers and relays share, and a time and a number against replay; what a
// forger could gain is a few more reads, up to the relay's limit.
package hint
