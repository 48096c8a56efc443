// Package share divides work among instances by the broker's consumer groups.
//
// The partitions of one small control topic, in which nothing is ever written,
// are the shards. A Member joins the group of that topic, and runs one function
// for each shard that the group assigns to it; the broker notices members that
// come, leave and die, and assigns their shards to the others.
//
// Of all instances at most one owns a shard at any moment, by a lease: a member
// knows until when the broker cannot have given its shards to another, because
// it may not before the session timeout has gone by since a heartbeat that it
// acknowledged. A little before that the member stops its functions by itself.
// What they write, they write behind Hold.Check, which says no from that moment
// on, also in a process that stood still meanwhile.
// docs/design/shards.md explains how, and what remains.
package share
