package publish

import "time"

// DataLoss describes a partition that no longer has records that it acknowledged, because
// a replica without them became its leader.
type DataLoss struct {
	Topic     string
	Partition int32
	At        time.Time
}

// dataLossReported is the time for which a loss is a readiness problem. The relay cannot
// repair a loss; a verification finds the missing events.
const dataLossReported = time.Hour

// lost reports a loss. The producer's client calls it without the publisher's lock.
func (p *Publisher) lost(topic string, partition int32) {
	p.Metrics.dataLoss.Inc()
	p.loss.Store(&DataLoss{Topic: topic, Partition: partition, At: time.Now()})
	p.log.Error("the broker has lost records that it acknowledged; find the missing events with outbox verify", "topic", topic, "partition", partition)
}

// DataLoss returns the last loss if it is more recent than dataLossReported, else nil.
func (p *Publisher) DataLoss(now time.Time) *DataLoss {
	if l := p.loss.Load(); l != nil && now.Sub(l.At) < dataLossReported {
		return l
	}
	return nil
}
