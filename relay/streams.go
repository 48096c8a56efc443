package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Streams returns the ids of the streams that the table's CDC log writes to now, ordered by token.
// Their number limits the parallelism of the relay and of the log. Only Session, Keyspace,
// TableKeyspace and Table of cfg are used.
func Streams(ctx context.Context, cfg Config) ([][]byte, error) {
	cfg = cfg.withDefaults()
	source := cdclog.NewGenerations(cfg.Session, cfg.TableKeyspace, cfg.Table, nil)
	starts, err := source.Times(ctx)
	if err != nil {
		return nil, err
	}
	var current time.Time
	now := time.Now()
	for _, start := range starts {
		if start.After(current) && !start.After(now) {
			current = start
		}
	}
	if current.IsZero() {
		return nil, fmt.Errorf("the CDC log of table %s.%s has no generation yet", cfg.TableKeyspace, cfg.Table)
	}
	g, err := source.Generation(ctx, current)
	if err != nil {
		return nil, err
	}
	return g.Streams, nil
}
