package sessions

import (
	"context"
	"net"
	"time"

	"github.com/gocql/gocql"
)

const (
	// compareEvery is the interval at which the known nodes are compared with system.peers.
	compareEvery = 10 * time.Second
	// absences is the number of consecutive comparisons without a node after which it has
	// left the cluster. system.peers loses rows for some 0.2 s after another node has joined.
	absences = 3
)

// Follow compares the known nodes with the members of the cluster, at intervals until s is
// closed. The driver's events do not suffice: a node that is decommissioned sends that it is
// down and, at times, never that it was removed. Several sessions of a process may be followed;
// one of the open ones is read.
func (n *Nodes) Follow(s *gocql.Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.followed = append(n.followed, s)
	if len(n.followed) == 1 {
		time.AfterFunc(compareEvery, n.followOnce)
	}
}

// followOnce compares the nodes once, and schedules the next comparison while a session is open.
func (n *Nodes) followOnce() {
	n.mu.Lock()
	for len(n.followed) > 0 && n.followed[0].Closed() {
		n.followed = n.followed[1:]
	}
	if len(n.followed) == 0 {
		n.mu.Unlock()
		return
	}
	s := n.followed[0]
	n.mu.Unlock()
	if members, err := readMembers(s); err == nil {
		n.compare(members)
	}
	time.AfterFunc(compareEvery, n.followOnce)
}

// readMembers returns the host ids and the addresses of all nodes that a node knows as members,
// itself included. The row of a joining node has an id alone.
func readMembers(s *gocql.Session) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), compareEvery)
	defer cancel()
	iter := s.Query("SELECT peer, rpc_address, host_id FROM system.peers").WithContext(ctx).Consistency(gocql.One).Idempotent(true).Iter()
	members := map[string]bool{}
	var peer, rpc net.IP
	var id gocql.UUID
	for iter.Scan(&peer, &rpc, &id) {
		members[peer.String()], members[rpc.String()], members[id.String()] = true, true, true
	}
	if h := iter.Host(); h != nil {
		members[h.ConnectAddress().String()], members[h.HostID()] = true, true
	}
	return members, iter.Close()
}

// compare marks the nodes that are no members as nodes that have left, and the others as members.
func (n *Nodes) compare(members map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.byHost {
		id := one.id.Load()
		if members[one.addr] || id != nil && members[*id] {
			one.absent = 0
			one.leave(false)
			continue
		}
		if one.absent++; one.absent >= absences {
			one.leave(true)
		}
	}
}
