package share

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ensureTopic creates the control topic if it is missing. It returns a CountError if the
// number of its partitions differs from the number of shards.
func (m *Member) ensureTopic(ctx context.Context, admin *kadm.Client) error {
	topic := m.cfg.topic()
	details, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("describe topic %s: %w", topic, err)
	}
	switch err := details[topic].Err; {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		_, err := admin.CreateTopic(ctx, int32(m.cfg.Shards), m.cfg.Replication, nil, topic)
		if err != nil {
			return &createError{topic, err}
		}
		m.log.Info("control topic created", "topic", topic, "shards", m.cfg.Shards)
		return nil
	case err != nil:
		return fmt.Errorf("describe topic %s: %w", topic, err)
	}
	if n := len(details[topic].Partitions); n != m.cfg.Shards {
		return &CountError{Topic: topic, Partitions: n, Shards: m.cfg.Shards}
	}
	return nil
}
