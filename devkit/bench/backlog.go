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
	// backlogWorkers write a backlog, each backlogBatch events of different aggregates at a
	// time, or fewer, whose payloads have backlogBytes.
	backlogWorkers = 8
	backlogBatch   = 16
	backlogBytes   = 64 << 10
)

// WriteBacklog stores n events as fast as possible, each aggregate's in order. wrote is
// called with the number of events of each batch stored.
func WriteBacklog(ctx context.Context, session *gocql.Session, table outbox.Table, e *Events, n int64, wrote func(int64)) error {
	work, ctx := errgroup.WithContext(ctx)
	batch := int64(max(1, min(backlogBatch, backlogBytes/e.size)))
	var mu sync.Mutex
	var next int64
	for range backlogWorkers {
		work.Go(func() error {
			for {
				mu.Lock()
				from := next
				next += batch
				mu.Unlock()
				if e.number(from, 1) >= n {
					return nil
				}
				for seq := int64(1); seq <= e.per && e.number(from, seq) < n; seq++ {
					b := session.Batch(gocql.UnloggedBatch).WithContext(ctx)
					for a := from; a < from+batch; a++ {
						i := e.number(a, seq)
						if i >= n {
							continue
						}
						stmt, args, err := table.Insert(e.At(i)) // Append refuses unlogged batches
						if err != nil {
							return err
						}
						b.Query(stmt, args...)
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
