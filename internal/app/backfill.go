package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// showBackfill shows a progress bar on a terminal while the relay scans the outbox table;
// elsewhere the log of the relay reports the progress. stop ends it.
func showBackfill(ctx context.Context, w io.Writer, status func() relay.BackfillStatus) (stop func()) {
	bar := cli.NewProgress(w, func() cli.Work {
		b := status()
		return cli.Work{Done: int64(b.Done), Total: int64(b.Ranges), Detail: fmt.Sprintf("ranges of the outbox, %d rows, %d published", b.Rows, b.Published)}
	})
	if !bar.Terminal {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if status().Running {
				drawing, done := context.WithCancel(ctx)
				go func() {
					for status().Running && retry.Wait(drawing, 200*time.Millisecond) == nil {
					}
					done()
				}()
				bar.Run(drawing)
				done()
			}
			if retry.Wait(ctx, time.Second) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// backfillDetail returns the detail of a scan for /readyz, nil without one.
func backfillDetail(b *relay.BackfillStatus) any {
	if b.Ranges == 0 {
		return nil
	}
	return struct {
		Running    bool   `json:"running"`
		Reason     string `json:"reason"`
		Done       int    `json:"ranges_done"`
		Ranges     int    `json:"ranges"`
		Rows       int64  `json:"rows"`
		Published  int64  `json:"published"`
		Unreadable int64  `json:"unreadable"`
	}{b.Running, b.Reason, b.Done, b.Ranges, b.Rows, b.Published, b.Unreadable}
}

// BackfillRequest is a scan of the outbox that an operator requests.
type BackfillRequest struct {
	From          time.Time // zero requests none
	Actor, Reason string
}

// record records the request in the audit trail. The relay scans each time once, whatever the
// number of its starts, and reports the result in its status.
func (b BackfillRequest) record(ctx context.Context, c *Config, session *gocql.Session, log *slog.Logger) error {
	if b.From.IsZero() {
		return nil
	}
	change := admin.Change{
		Actor: b.Actor, Action: "request-backfill", Target: c.Relay.Name, Reason: cmp.Or(strings.TrimSpace(b.Reason), "--backfill-from"),
		Detail: map[string]any{"from": b.From.UTC()},
	}
	return c.Trail(session, log).Record(ctx, change, func(context.Context) (any, error) { return nil, nil })
}
