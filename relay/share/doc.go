// Package share divides work among instances with the broker's consumer groups.
//
// The partitions of a control topic, which is always empty, are the shards. A Member
// joins the group of that topic and runs one function for each shard that the group
// assigns to it. The broker detects members that join, leave and fail, and reassigns
// their shards.
//
// A lease ensures that at most one instance owns a shard at any moment. The broker may
// reassign the shards of a member only once the session timeout has passed since a
// heartbeat that it acknowledged; the lease ends a margin before that, and the member
// then stops its functions. Each write of a function is guarded by Hold.Check, which
// returns an error from that moment on, also after a pause of the process.
//
// It relies on: members under one name divide the same work. The name of the group's protocol
// contains the number of shards and the identity of the database, so a member that differs in one
// of them is rejected by the broker and ends with the reason.
//
// docs/design/shards.md contains the protocol and its limits.
//
// It is a part of the program, and may change in any version.
package share
