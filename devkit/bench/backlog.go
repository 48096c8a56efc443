package bench

import (
	"context"
	"fmt"
	"sync"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const (
	// backlogWorkers write a backlog, backlogBatch events of different aggregates at a time.
	backlogWorkers = 8
	backlogBatch   = 16
)

// WriteBacklog stores n events as fast as possible, each aggregate's in order. wrote is
// called with the number of events of each batch stored.
func WriteBacklog(ctx context.Context, session *gocql.Session, table outbox.Table, e *Events, n int64, wrote func(int64)) error {
	work, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	var next int64
	for range backlogWorkers {
		work.Go(func() error {
			for {
				mu.Lock()
				from := next
				next += backlogBatch
				mu.Unlock()
				if e.number(from, 1) >= n {
					return nil
				}
				for seq := int64(1); seq <= perAggregate; seq++ {
					b := session.Batch(gocql.UnloggedBatch).WithContext(ctx)
					for a := from; a < from+backlogBatch; a++ {
						i := e.number(a, seq)
						if i >= n {
							continue
						}
						if err := table.Append(b, e.At(i)); err != nil {
							return err
						}
					}
					if b.Size() == 0 {
						continue
					}
					if err := b.Exec(); err != nil {
						return fmt.Errorf("write the backlog: %w", err)
					}
					wrote(int64(b.Size()))
				}
			}
		})
	}
	return work.Wait()
}
