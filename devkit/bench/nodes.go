package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// BusyMetric is the processor time of a shard of ScyllaDB in milliseconds, a counter of its
// Prometheus port, 9180.
const BusyMetric = "scylla_reactor_cpu_busy_ms"

// nodePatience limits the wait for the metrics of one node.
const nodePatience = 2 * time.Second

// Nodes are the URLs of the Prometheus ports of all nodes of a cluster, such as
// http://10.0.0.1:9180.
type Nodes []string

// Usage returns the processor time that all shards of the nodes have used since their
// starts; the time of the measurement is that of the last answer. The error names the node
// that did not answer or has no such counter.
func (n Nodes) Usage(ctx context.Context) (u Usage, err error) {
	if len(n) == 0 {
		return u, errors.New("no node is known")
	}
	for _, url := range n {
		ctx, cancel := context.WithTimeout(ctx, nodePatience)
		m, err := ScrapeAll(ctx, url)
		cancel()
		if err != nil {
			return Usage{}, fmt.Errorf("node %s: %w", url, err)
		}
		if len(m[BusyMetric].GetMetric()) == 0 {
			return Usage{}, fmt.Errorf("node %s has no %s", url, BusyMetric)
		}
		u.CPU += time.Duration(m.Sum(BusyMetric) * float64(time.Millisecond))
	}
	u.At = time.Now()
	return u, nil
}
