package app

import (
	"context"
	"errors"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// RequestsMetric counts the requests to the database.
const RequestsMetric = "outbox_scylla_requests_total"

// Requests counts the requests of sessions to the database. It counts each page and each
// attempt, and requests for which no node was available, which the driver's observers do not
// see.
type Requests struct {
	ok, failed, timedOut, called, unreached prometheus.Counter
}

// NewRequests returns counters that are registered with reg. It panics if reg has them
// already.
func NewRequests(reg prometheus.Registerer) *Requests {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: RequestsMetric, Help: "Requests to the database, each page and each attempt, by result: ok; error, refused or connection lost; " +
			"timeout, no answer in time; unreached, no node up and connected; canceled, by the caller.",
	}, []string{"result"})
	reg.MustRegister(c)
	return &Requests{
		ok: c.WithLabelValues("ok"), failed: c.WithLabelValues("error"), timedOut: c.WithLabelValues("timeout"),
		called: c.WithLabelValues("canceled"), unreached: c.WithLabelValues("unreached"),
	}
}

// observe counts the requests of a cluster's sessions. Call it after the cluster's host
// selection policy is set; nil is the driver's default.
func (r *Requests) observe(cluster *gocql.ClusterConfig) {
	cluster.QueryObserver, cluster.BatchObserver = r, r
	policy := cluster.PoolConfig.HostSelectionPolicy
	if policy == nil {
		policy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	}
	cluster.PoolConfig.HostSelectionPolicy = countingPolicy{policy, r.unreached}
}

// ObserveQuery counts a query, and records its span.
func (r *Requests) ObserveQuery(ctx context.Context, q gocql.ObservedQuery) {
	r.count(q.Err)
	if recording(ctx) {
		statementSpan(ctx, statementOperation(q.Statement), q.Start, q.End, q.Keyspace, q.Host, q.Err, semconv.DBQueryText(q.Statement))
	}
}

// ObserveBatch counts a batch, and records its span.
func (r *Requests) ObserveBatch(ctx context.Context, b gocql.ObservedBatch) {
	r.count(b.Err)
	if recording(ctx) {
		statementSpan(ctx, "BATCH", b.Start, b.End, b.Keyspace, b.Host, b.Err, semconv.DBOperationBatchSize(len(b.Statements)))
	}
}

func (r *Requests) count(err error) {
	switch {
	case err == nil:
		r.ok.Inc()
	case errors.Is(err, context.Canceled):
		r.called.Inc()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, gocql.ErrTimeoutNoResponse):
		r.timedOut.Inc()
	default:
		r.failed.Inc()
	}
}

// countingPolicy counts the requests for which no host is available: none is up, or none has
// a connection. The driver looks up the connection of a host after it was picked, and calls
// no observer if there is none; but it marks each host whose attempt failed.
type countingPolicy struct {
	gocql.HostSelectionPolicy
	unreached prometheus.Counter
}

// Pick returns the hosts for a request.
func (p countingPolicy) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	next := p.HostSelectionPolicy.Pick(q)
	asked, over := false, false
	return func() gocql.SelectedHost {
		if h := next(); h != nil {
			return countedHost{h, &asked}
		}
		if !asked && !over {
			p.unreached.Inc()
		}
		over = true
		return nil
	}
}

// AddHosts adds several hosts. The driver calls it if a policy has it.
func (p countingPolicy) AddHosts(hosts []*gocql.HostInfo) {
	if many, ok := p.HostSelectionPolicy.(interface{ AddHosts([]*gocql.HostInfo) }); ok {
		many.AddHosts(hosts)
		return
	}
	for _, h := range hosts {
		p.AddHost(h)
	}
}

// countedHost records that an attempt at its host failed.
type countedHost struct {
	gocql.SelectedHost
	asked *bool
}

// Mark is called with the error of a failed attempt.
func (h countedHost) Mark(err error) {
	*h.asked = true
	h.SelectedHost.Mark(err)
}
