package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
)

// committer commits the positions of all partitions that have changed, one commit at a
// time: acknowledgements that arrive while one is running share the next one.
func (g *group) committer(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-g.dirty:
		case <-ctx.Done():
			return
		}
		if g.commitNow(ctx, g.ownedPartitions()) {
			failures = 0
			continue
		}
		failures++
		if retry.Wait(ctx, retry.Backoff(20*time.Millisecond, time.Second, failures)) != nil {
			return
		}
		g.needCommit()
	}
}

// errFenced is returned for partitions whose commit the coordinator refused because
// another instance owns them.
var errFenced = errors.New("the group has given the partition to another instance")

// commitNow commits the positions of the partitions; false if some have to be committed
// again.
func (g *group) commitNow(ctx context.Context, all []*partition) bool {
	g.commit.Lock()
	defer g.commit.Unlock()
	positions := make(map[*partition]queue.Position)
	for _, p := range all {
		p.mu.Lock()
		if q := p.mu.q; q != nil && !p.mu.closed {
			if changed, _ := q.Dirty(); changed {
				positions[p] = q.Position()
			}
		}
		p.mu.Unlock()
	}
	if len(positions) == 0 {
		return true
	}
	done := true
	for p, err := range g.send(ctx, positions) {
		switch {
		case err == nil:
			p.withQueue(func(q *queue.Queue) {
				q.ConfirmPosition(positions[p])
				p.mu.committed = time.Now()
			})
		case errors.Is(err, errFenced):
			g.log.Warn("another instance owns the partition", "topic", p.topic, "partition", p.number)
			g.closeFenced(p)
		default:
			done = false
			g.log.Warn("failed to commit a position; retrying", "topic", p.topic, "partition", p.number, "err", err)
			p.withQueue(func(q *queue.Queue) { q.Uncertain(positions[p]) })
		}
	}
	return done
}

// send commits positions and returns the result of each. Errors other than errFenced mean
// that the outcome is unknown. Called with group.commit.
//
// The client's own commits wait until a rebalance has ended; these are refused then and
// repeated. They cannot reach a later owner: a partition is given away only after forget,
// which waits for group.commit, so that member and generation belong to an owner.
func (g *group) send(ctx context.Context, positions map[*partition]queue.Position) map[*partition]error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = g.incarnation
	req.MemberID, req.Generation = g.client.GroupMetadata()
	byPlace := make(map[topicPartition]*partition, len(positions))
	results := make(map[*partition]error, len(positions))
	topics := make(map[string]int)
	for p, pos := range positions {
		i, ok := topics[p.topic]
		if !ok {
			i = len(req.Topics)
			topics[p.topic] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = p.topic, p.topicID
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p.number, pos.Offset, pos.LeaderEpoch, kmsg.StringPtr(pos.Metadata)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		byPlace[p.topicPartition] = p
		results[p] = errors.New("the coordinator did not answer for the partition")
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	g.cancels.Store(&cancel)
	resp, err := req.RequestWith(ctx, g.client)
	if err != nil {
		for p := range results {
			results[p] = err
		}
		return results
	}
	for i := range resp.Topics {
		topic := commitTopic(req, &resp.Topics[i])
		for _, rp := range resp.Topics[i].Partitions {
			if p := byPlace[topicPartition{topic, rp.Partition}]; p != nil {
				results[p] = commitError(rp.ErrorCode)
			}
		}
	}
	return results
}

// commitTopic returns the name of a topic in a response, which may have its id only.
func commitTopic(req *kmsg.OffsetCommitRequest, t *kmsg.OffsetCommitResponseTopic) string {
	if t.Topic == "" {
		for i := range req.Topics {
			if req.Topics[i].TopicID == t.TopicID {
				return req.Topics[i].Topic
			}
		}
	}
	return t.Topic
}

// commitError returns the error of a commit. A generation that has ended is no fence: the
// coordinator answers so to members only, also before this one has received the response to its
// JoinGroup, and a partition that a member claims has no other owner before that member gives it
// up. One that is no member any more is fenced.
func commitError(code int16) error {
	err := kerr.ErrorForCode(code)
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.FencedMemberEpoch):
		return errFenced
	case errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.StaleMemberEpoch):
		return fmt.Errorf("a rebalance ended during the commit: %w", err)
	}
	return err
}
