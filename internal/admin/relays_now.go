package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
)

// relayState is a relay of a table as it is now: without the heartbeats of earlier processes.
type relayState struct {
	Name      string          `json:"name"`
	Table     string          `json:"table" doc:"Its outbox table, keyspace.table"`
	Instances []heartbeatBody `json:"instances" doc:"The running processes that share the shards, with the ones that each owns"`
	Shards    []heartbeatBody `json:"shards" doc:"What publishes: each shard by its last owner or, without shards, each process of the relay"`
	Ended     int             `json:"ended_processes" doc:"Earlier processes that ended without reporting it"`
	EndedAt   *time.Time      `json:"ended_at,omitempty" doc:"Last heartbeat of the last one of them"`
}

// alive reports whether the last heartbeat is that of a process that runs.
func (r *heartbeatBody) alive() bool { return !r.Silent && r.State != heartbeat.Stopped }

// currentRelays returns the relays of heartbeats as they are now. A shard of an earlier number
// of shards, and a relay without shards whose table instances share now, are omitted.
func currentRelays(heartbeats []heartbeatBody) []relayState {
	out := []relayState{}
	for _, r := range byRelay(heartbeats) {
		s := relayState{Name: r.Name, Table: r.Table, Shards: []heartbeatBody{}}
		s.Instances = slices.DeleteFunc(r.Instances, func(h heartbeatBody) bool { return !h.alive() })
		slices.SortStableFunc(r.Shards, func(a, b heartbeatBody) int { return cmp.Or(cmp.Compare(a.Name, b.Name), b.At.Compare(a.At)) })
		last := ""
		for i := range r.Shards {
			h := &r.Shards[i]
			switch {
			case h.Name != last && s.concerns(h), h.alive() && s.concerns(h):
				s.Shards = append(s.Shards, *h)
			case h.Silent && s.concerns(h):
				s.Ended++
				if s.EndedAt == nil || s.EndedAt.Before(h.At) {
					s.EndedAt = &h.At
				}
			}
			last = h.Name
		}
		slices.SortStableFunc(s.Shards, func(a, b heartbeatBody) int { return cmp.Compare(a.index(), b.index()) })
		if len(s.Shards)+len(s.Instances) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b relayState) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Table, b.Table))
	})
	return out
}

// concerns reports whether a heartbeat is of the current sharing of the instances.
func (s *relayState) concerns(h *heartbeatBody) bool {
	switch {
	case len(s.Instances) == 0:
		return true
	case h.Shard == nil:
		return h.alive()
	}
	return slices.ContainsFunc(s.Instances, func(m heartbeatBody) bool { return m.Sharing.Shards == h.Shard.Count })
}

// unread returns the shards whose log no process reads, with the last heartbeat of each.
func (s *relayState) unread() (out []UnreadOf) {
	if !slices.ContainsFunc(s.Shards, func(h heartbeatBody) bool { return h.Shard != nil }) && len(s.Instances) == 0 {
		if slices.ContainsFunc(s.Shards, func(h heartbeatBody) bool { return h.alive() }) {
			return nil
		}
		return []UnreadOf{{Since: s.Shards[0].At}}
	}
	count := 0
	for i := range s.Instances {
		count = max(count, s.Instances[i].Sharing.Shards)
	}
	for i := range s.Shards {
		if h := &s.Shards[i]; h.Shard != nil {
			count = max(count, h.Shard.Count)
		}
	}
	for shard := range count {
		of := UnreadOf{Shard: shard, Shards: count}
		read := false
		for i := range s.Shards {
			if h := &s.Shards[i]; h.Shard != nil && h.Shard.Index == shard {
				read = read || h.alive()
				if of.Since.Before(h.At) {
					of.Since = h.At
				}
			}
		}
		if !read {
			out = append(out, of)
		}
	}
	return out
}

// index is the number of the shard, 0 without shards.
func (r *heartbeatBody) index() int {
	if r.Shard == nil {
		return 0
	}
	return r.Shard.Index
}
