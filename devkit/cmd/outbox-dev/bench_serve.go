package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
)

// newBenchServeCommand returns the command that runs the APIs of orders and messages in a process
// of its own, as `outbox orders` and `outbox messages` do, and measures its own time; below /bare
// it serves a handler that only writes the same rows.
func newBenchServeCommand() *cobra.Command {
	var payload int
	var addr string
	cmd := &cobra.Command{
		Use:    "serve",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			return app.Serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
				return benchServe(ctx, c, addr, payload, log, teardown)
			})
		}),
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "address of both APIs")
	cmd.Flags().IntVar(&payload, "payload", 512, "bytes of a message's payload")
	app.AddFlags(cmd, slices.Concat(app.MessagesSections, app.OrdersSections)...)
	return cmd
}

// benchServe serves until ctx ends.
func benchServe(ctx context.Context, c *app.Config, addr string, payload int, log *slog.Logger, teardown *daemon.Teardown) error {
	own := bench.NewOwn()
	cluster, err := c.Scylla.Cluster(c.Scylla.Keyspace)
	if err != nil {
		return err
	}
	cluster.BatchObserver, cluster.QueryObserver = own, own
	session, err := cluster.CreateSession()
	if err != nil {
		return err
	}
	teardown.AddFunc("scylla session", func() { sessions.Close(session) })
	reg := app.NewRegistry("bench")
	services, err := app.NewServices(ctx, c, session, app.Parts{Messages: true, Orders: true}, reg, log)
	if err != nil {
		return err
	}
	teardown.Add("services", services.Close)
	ofOrders, err := app.NewOrderServer(c, services, reg, log)
	if err != nil {
		return err
	}
	ofMessages, _, err := app.NewMessageServer(c, session, services, reg, log)
	if err != nil {
		return err
	}
	if cluster, err = c.Scylla.Cluster(c.Scylla.Keyspace); err != nil {
		return err
	}
	bare, err := newBareHandler(ctx, cluster, session, payload)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", ofOrders.Handler())
	mux.Handle(messages.Path+"/", ofMessages.Handler())
	mux.Handle(messages.Path, ofMessages.Handler())
	mux.Handle("POST /bare/", bare)
	api, err := daemon.ServeHTTP(ctx, addr, own.Handler(mux), log)
	if err != nil {
		return err
	}
	teardown.Add("APIs", func() error { return api.Shutdown(app.AdminShutdown) })
	ops, err := app.ServeOps(ctx, c, reg, log, teardown)
	if err != nil {
		return err
	}
	ops.Works(func() (bool, any) { return true, own.Latency() })
	log.Info("serving", "addr", api.Addr(), "ops", ops.URL)
	return api.With(ctx, func(ctx context.Context) error {
		return ops.With(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	})
}

// recordings are the statements of the services for one request of each kind.
type recordings struct {
	order, keyedOrder, message *bench.Recorded
}

// Names in recorded requests that differ from one to the next.
const (
	benchCustomer = "customer"
	benchKey      = "key"
)

// record lets the services handle one request of each kind, on a session of the
// cluster's, to be sent again by session. No other session may be of that cluster: a
// policy that picks hosts belongs to one.
func record(ctx context.Context, cluster *gocql.ClusterConfig, session *gocql.Session, payload int) (r recordings, err error) {
	var rec bench.Recorder
	cluster.BatchObserver, cluster.QueryObserver = &rec, &rec
	observed, err := cluster.CreateSession()
	if err != nil {
		return r, err
	}
	defer sessions.Close(observed)
	service, err := orders.New(observed, orders.Config{})
	if err != nil {
		return r, err
	}
	var order orders.NewOrder
	if err := json.Unmarshal(benchOrder(benchCustomer), &order); err != nil {
		return r, err
	}
	rec.Take(nil, 0)
	if _, err := service.Create(ctx, order, orders.WriteOptions{}); err != nil {
		return r, err
	}
	r.order = rec.Take(session, gocql.LoggedBatch, benchCustomer)
	if _, err := service.Create(ctx, order, orders.WriteOptions{IdempotencyKey: benchKey}); err != nil {
		return r, err
	}
	r.keyedOrder = rec.Take(session, gocql.LoggedBatch, benchCustomer, benchKey)
	intake, err := messages.NewService(observed, messages.Config{Topics: []string{"bench"}})
	if err != nil {
		return r, err
	}
	var message messages.NewMessage
	if err := json.Unmarshal(benchMessage(payload), &message); err != nil {
		return r, err
	}
	if _, err := intake.Accept(ctx, message, messages.Options{}); err != nil {
		return r, err
	}
	r.message = rec.Take(session, gocql.LoggedBatch)
	return r, nil
}

// newBareHandler returns a handler that reads a body, writes the rows of a service, and
// responds with as many bytes as a service.
func newBareHandler(ctx context.Context, cluster *gocql.ClusterConfig, session *gocql.Session, payload int) (http.Handler, error) {
	r, err := record(ctx, cluster, session, payload)
	if err != nil {
		return nil, err
	}
	kinds := map[string]struct {
		what   *bench.Recorded
		items  int
		answer []byte
	}{
		"/bare/orders":       {r.order, 1, make([]byte, 900)},
		"/bare/orders-keyed": {r.keyedOrder, 1, make([]byte, 900)},
		"/bare/messages":     {r.message, 1, make([]byte, 200)},
		"/bare/batch":        {r.message, messages.MaxBatch, make([]byte, 260*messages.MaxBatch)},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		kind, ok := kinds[req.URL.Path]
		if !ok {
			http.NotFound(w, req)
			return
		}
		if _, err := io.ReadAll(req.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		number, _ := strconv.ParseInt(req.URL.RawQuery, 10, 64)
		if err := sendMany(req.Context(), kind.what, number, kind.items); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(kind.answer) // the caller may have hung up
	}), nil
}

// bareConcurrency is the number of concurrent statements of a batch.
const bareConcurrency = 128

// sendMany sends the recorded statements n times concurrently, numbered from i*n on.
func sendMany(ctx context.Context, what *bench.Recorded, i int64, n int) error {
	if n == 1 {
		return what.Send(ctx, i)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bareConcurrency)
	for k := range n {
		g.Go(func() error { return what.Send(ctx, i*int64(n)+int64(k)) })
	}
	return g.Wait()
}
