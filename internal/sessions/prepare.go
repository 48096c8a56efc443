package sessions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/gocql/gocql"
)

// errPrepared ends a statement that was prepared before it is executed.
var errPrepared = errors.New("prepared")

// Prepare prepares statements concurrently and does not execute them, so that their first executions take one
// round trip to the database, not two. It returns once all are answered, or ctx ends. A statement that cannot be
// prepared is left to its execution, which has the error. The driver prepares for each node, so this is of use for
// a session with [OneNode], or with one node.
func Prepare(ctx context.Context, s *gocql.Session, statements ...string) {
	var all sync.WaitGroup
	for _, statement := range statements {
		all.Go(func() {
			_ = s.Bind(statement, func(*gocql.QueryInfo) ([]any, error) { return nil, errPrepared }).
				WithContext(ctx).RetryPolicy(&gocql.SimpleRetryPolicy{}).Exec()
		})
	}
	all.Wait()
}

// OneNode returns a policy of the hosts of another one, which sends all requests to the same local node while it
// answers, so that each statement is prepared once.
func OneNode(hosts gocql.HostSelectionPolicy) gocql.HostSelectionPolicy { return oneNode{hosts} }

type oneNode struct{ gocql.HostSelectionPolicy }

// Pick returns the hosts for a request: the local ones first, each in the order of their ids.
func (p oneNode) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	var hosts []gocql.SelectedHost
	next := p.HostSelectionPolicy.Pick(q)
	for h := next(); h != nil; h = next() {
		hosts = append(hosts, h)
	}
	remote := func(h gocql.SelectedHost) int {
		if p.IsLocal(h.Info()) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(hosts, func(a, b gocql.SelectedHost) int {
		return cmp.Or(remote(a)-remote(b), cmp.Compare(a.Info().HostID(), b.Info().HostID()))
	})
	return func() gocql.SelectedHost {
		if len(hosts) == 0 {
			return nil
		}
		h := hosts[0]
		hosts = hosts[1:]
		return h
	}
}
