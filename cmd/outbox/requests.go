package main

import (
	"context"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/bench"
)

// requests counts what a session sends to the database. Each page of an answer
// and each attempt counts.
type requests struct {
	ok, failed prometheus.Counter
}

func newRequests(reg prometheus.Registerer) *requests {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: bench.QueriesMetric, Help: "Requests sent to the database, each page of an answer and each attempt, by how they ended.",
	}, []string{"result"})
	reg.MustRegister(c)
	return &requests{ok: c.WithLabelValues("ok"), failed: c.WithLabelValues("error")}
}

// ObserveQuery is told of each query.
func (r *requests) ObserveQuery(_ context.Context, q gocql.ObservedQuery) { r.count(q.Err) }

// ObserveBatch is told of each batch.
func (r *requests) ObserveBatch(_ context.Context, b gocql.ObservedBatch) { r.count(b.Err) }

func (r *requests) count(err error) {
	if err != nil {
		r.failed.Inc()
		return
	}
	r.ok.Inc()
}
