package app

import (
	"context"
	"fmt"
	"io"
	"time"

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
