package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cgroup"
)

// conditions maps the name of each condition that does not hold to the reason.
// Conditional dead letters wait for conditions.
type conditions map[string]string

// first returns the reason of the first of names that does not hold, or "" if all hold.
func (c conditions) first(names []string) string {
	for _, n := range names {
		if why := c[n]; why != "" {
			return why
		}
	}
	return ""
}

// Load is the CPU and memory usage of the relay's container in percent, or that of the
// machine where the container has no limit.
type Load = cgroup.Load

// LoadMeter measures the load of the relay's container. It is safe for concurrent use.
type LoadMeter interface {
	// Load measures the load. An error means that it is unknown.
	Load(ctx context.Context) (Load, error)
}

// conditions returns the conditions that do not hold now; load was just measured, or
// loadErr is the reason why not.
func (r *Replayer) conditions(ctx context.Context, load Load, loadErr error) conditions {
	p := r.p
	out := make(conditions)
	began := time.Now()
	_, err := p.cfg.DeadLetters.Holds(ctx, p.cfg.tableName())
	switch took := time.Since(began); {
	case err != nil:
		out[dlq.ConditionDatabase] = fmt.Sprintf("%s: the database does not answer: %v", dlq.ConditionDatabase, err)
	case took > p.cfg.ConditionDatabase:
		out[dlq.ConditionDatabase] = fmt.Sprintf("%s: a read took %s, more than %s", dlq.ConditionDatabase, took.Round(time.Millisecond), p.cfg.ConditionDatabase)
	}
	if err := loadErr; err != nil { // an unknown condition does not hold
		out[dlq.ConditionCPU] = fmt.Sprintf("%s: %v", dlq.ConditionCPU, err)
		out[dlq.ConditionMemory] = fmt.Sprintf("%s: %v", dlq.ConditionMemory, err)
	}
	if load.CPU >= p.cfg.ConditionCPU {
		out[dlq.ConditionCPU] = fmt.Sprintf("%s: it is at %.0f %%, the limit is %.0f %%", dlq.ConditionCPU, load.CPU, p.cfg.ConditionCPU)
	}
	if load.Memory >= p.cfg.ConditionMemory {
		out[dlq.ConditionMemory] = fmt.Sprintf("%s: it is at %.0f %%, the limit is %.0f %%", dlq.ConditionMemory, load.Memory, p.cfg.ConditionMemory)
	}
	if s := p.calls.State(); s != BreakerClosed {
		out[dlq.ConditionBreaker] = fmt.Sprintf("%s: the breaker is %s", dlq.ConditionBreaker, s)
	}
	failedAt, failing := p.calls.LastFailure()
	quiet := time.Since(failedAt)
	switch {
	case failing:
		out[dlq.ConditionBroker] = dlq.ConditionBroker + ": a call failed, and the broker has answered none since"
	case !failedAt.IsZero() && quiet < p.cfg.ConditionBroker:
		out[dlq.ConditionBroker] = fmt.Sprintf("%s: a call failed %s ago, less than %s", dlq.ConditionBroker, quiet.Round(time.Second), p.cfg.ConditionBroker)
	default:
		for _, s := range p.stalled() {
			out[dlq.ConditionBroker] = fmt.Sprintf("%s: partition %d of topic %s acknowledges nothing", dlq.ConditionBroker, s.Partition, s.Topic)
		}
	}
	return out
}
