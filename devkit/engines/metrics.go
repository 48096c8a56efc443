package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// busyReader is a database that knows how long its shards are busy.
type busyReader interface{ Busy() []time.Duration }

// serveMetrics serves the metric of a node's Prometheus port that benchmarks read, and
// returns the URL.
func serveMetrics(db busyReader, teardown *daemon.Teardown) (url string, err error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: metricsHandler(db), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	teardown.Add("metrics of the embedded database", func() error {
		err := server.Close()
		if end := <-done; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return "http://" + l.Addr().String(), nil
}

// metricsHandler answers with scylla_reactor_cpu_busy_ms of each shard.
func metricsHandler(db busyReader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, "# TYPE scylla_reactor_cpu_busy_ms counter")
		for shard, busy := range db.Busy() {
			fmt.Fprintf(w, "scylla_reactor_cpu_busy_ms{shard=\"%d\"} %g\n", shard, float64(busy)/float64(time.Millisecond))
		}
	})
}
