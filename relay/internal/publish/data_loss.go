package publish

import "time"

// DataLoss is a partition that no longer has records which it acknowledged: a replica
// that did not have them became its leader.
type DataLoss struct {
	Topic     string
	Partition int32
	At        time.Time
}

// dataLossReported is how long a loss is a problem of readiness. Nothing in the relay
// ends it, and what is missing is found by a verification.
const dataLossReported = time.Hour

// lost reports a loss. The producer's client calls it without the publisher's lock.
func (p *Publisher) lost(topic string, partition int32) {
	p.Metrics.dataLoss.Inc()
	p.loss.Store(&DataLoss{Topic: topic, Partition: partition, At: time.Now()})
	p.log.Error("the broker has lost records that it acknowledged; find the missing events with outbox verify", "topic", topic, "partition", partition)
}

// DataLoss returns the last loss of dataLossReported, nil if there was none.
func (p *Publisher) DataLoss(now time.Time) *DataLoss {
	if l := p.loss.Load(); l != nil && now.Sub(l.At) < dataLossReported {
		return l
	}
	return nil
}
