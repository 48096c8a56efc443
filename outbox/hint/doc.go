// Package hint lets a writer notify the relays of a committed event, so that they read
// its CDC stream immediately.
//
// A hint is the token of an aggregate. Hints are batched for at most a millisecond and
// sent in UDP datagrams. They are best effort: a lost or late hint only costs latency,
// because a relay polls all streams regularly. A datagram contains an HMAC-SHA256 under a
// key that writers and relays share, and a time and a number against replay. A forged
// hint could only cause a few more reads, up to the relay's limit.
package hint
