package bench

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// Own measures the time that requests take beside the database: the time in the handler
// less the statements and batches that it waited for one after the other. It is a
// session's observer, and safe for concurrent use.
type Own struct {
	mu sync.Mutex
	h  *histogram
}

// NewOwn returns an Own without measurements.
func NewOwn() *Own { return &Own{h: newHistogram()} }

// atDatabase is the key of a request's time at the database in its context.
type atDatabase struct{}

// Handler measures the requests to next that write.
func (o *Own) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		var spent atomic.Int64
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), atDatabase{}, &spent)))
		if r.Method != http.MethodPost || spent.Load() == 0 { // as a refused request
			return
		}
		d := time.Since(began) - time.Duration(spent.Load())
		o.mu.Lock()
		defer o.mu.Unlock()
		record(o.h, d)
	})
}

// ObserveBatch counts a batch.
func (o *Own) ObserveBatch(ctx context.Context, b gocql.ObservedBatch) {
	spend(ctx, b.End.Sub(b.Start))
}

// ObserveQuery counts a statement.
func (o *Own) ObserveQuery(ctx context.Context, q gocql.ObservedQuery) {
	spend(ctx, q.End.Sub(q.Start))
}

func spend(ctx context.Context, d time.Duration) {
	if spent, ok := ctx.Value(atDatabase{}).(*atomic.Int64); ok {
		spent.Add(int64(d))
	}
}

// Latency returns the distribution of all requests so far.
func (o *Own) Latency() Latency {
	o.mu.Lock()
	defer o.mu.Unlock()
	return someLatency(o.h)
}
