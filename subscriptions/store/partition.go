package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/turn"
)

// Partition is a partition of a topic as a subscription reads it.
type Partition struct {
	// Subscription is an incarnation, subscriptions.Subscription.Incarnation.
	Subscription, Topic string
	Number              int32
}

// String returns topic and number.
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

func (p Partition) args(more ...any) []any {
	return append([]any{p.Subscription, p.Topic, p.Number}, more...)
}

// Owner is the last claim of a partition.
type Owner struct {
	// Epoch is 0 and Owner is empty for a partition that was never claimed.
	Epoch int64
	Owner string
}

// partition is the state of a partition that its last writer in this process knows.
type partition struct {
	mu struct {
		turn.Turn
		// known is false while the static columns must be read before the next write.
		known bool
		statics
	}
}

// statics are the static columns of a partition.
type statics struct {
	epoch int64
	owner string
	last  gocql.UUID
	first int64
	topic gocql.UUID
}

func (st *statics) scan(q *gocql.Query) error {
	var discard Partition
	return q.Scan(&discard.Subscription, &discard.Topic, &discard.Number, &st.epoch, &st.owner, &st.last, &st.first, &st.topic)
}

func (s *Store) partition(p Partition) *partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	pt := s.mu.partitions[p]
	if pt == nil {
		pt = new(partition)
		pt.mu.Turn = turn.New()
		s.mu.partitions[p] = pt
	}
	return pt
}

// readStatics returns the static columns with all writes that are decided, and prevents
// earlier writes that are undecided.
func (s *Store) readStatics(ctx context.Context, p Partition) (st statics, err error) {
	err = s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error { return st.scan(s.serialRead(ctx, s.stmt.statics, p.args()...)) })
	})
	if errors.Is(err, gocql.ErrNotFound) {
		return statics{}, nil
	}
	return st, err
}

// Owner returns the last claim of a partition. It may miss one that is being written: a serial
// read would delay the writes of the owner.
func (s *Store) Owner(ctx context.Context, p Partition) (Owner, error) {
	var st statics
	err := s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error { return st.scan(s.query(ctx, s.stmt.statics, p.args()...)) })
	})
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return Owner{}, fmt.Errorf("read the owner of partition %s: %w", p, err)
	}
	return Owner{st.epoch, st.owner}, nil
}

// ClaimPartition makes owner the only writer of a partition and returns the epoch of its
// writes, which is larger than all former ones. No write of a former epoch is applied
// afterwards. Of concurrent claims each gets an epoch of its own, and the largest one can
// write. After an error the partition may be claimed; claim it again.
func (s *Store) ClaimPartition(ctx context.Context, p Partition, owner string) (int64, error) {
	pt := s.partition(p)
	pt.mu.Lock()
	defer pt.mu.Unlock()
	pt.mu.known = false
	// First, so that the removal of a subscription finds all its partitions.
	err := s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error { return s.query(ctx, s.stmt.addPartition, p.args()...).Exec() })
	})
	if err != nil {
		return 0, fmt.Errorf("claim partition %s: %w", p, err)
	}
	owner = strings.ToValidUTF8(owner, "\uFFFD")
	id := gocql.MustRandomUUID()
	unknown := error(nil)
	for budget := s.retry(ctx); ; {
		st, err := s.readStatics(ctx, p)
		if err != nil {
			return 0, fmt.Errorf("claim partition %s: %w", p, errors.Join(err, unknown))
		}
		if st.last == id { // an attempt without an answer was applied
			pt.mu.statics, pt.mu.known = st, true
			return st.epoch, nil
		}
		next := statics{epoch: st.epoch + 1, owner: owner, last: id, first: st.first, topic: st.topic}
		applied := false
		if args := append([]any{next.epoch, owner, id}, p.args()...); st.epoch == 0 {
			applied, err = s.swap(ctx, s.stmt.firstClaim, args...)
		} else {
			applied, err = s.swap(ctx, s.stmt.claim, append(args, st.epoch)...)
		}
		switch {
		case applied && err == nil:
			// A former owner may have changed first_offset since it was read.
			pt.mu.known = false
			return next.epoch, nil
		case permanent(err):
			return 0, fmt.Errorf("claim partition %s: %w", p, err)
		case cqlcode.ClassifyFate(err) == cqlcode.Unknown:
			unknown = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if !budget.Pause() {
			return 0, fmt.Errorf("claim partition %s: %w", p, errors.Join(err, unknown, context.Cause(ctx)))
		}
	}
}

// TopicID returns the id of the topic that the stored messages of a partition belong to, as
// SetTopicID has stored it; zero if it has not.
func (s *Store) TopicID(ctx context.Context, p Partition) ([16]byte, error) {
	st, err := s.readStatics(ctx, p)
	if err != nil {
		return [16]byte{}, fmt.Errorf("read the topic id of partition %s: %w", p, err)
	}
	return st.topic, nil
}

// SetTopicID stores the id of the topic that the stored messages belong to from now on. The
// caller has removed the messages of another topic.
func (s *Store) SetTopicID(ctx context.Context, p Partition, epoch int64, id [16]byte) error {
	args := append([]any{gocql.UUID(id)}, p.args()...)
	c := change{lowest: math.MaxInt64, stmts: []statement{{s.stmt.setTopic, args}}}
	if err := s.write(ctx, p, s.partition(p), epoch, &c); err != nil {
		return fmt.Errorf("store the topic id of partition %s: %w", p, err)
	}
	return nil
}

// HandOver returns the leases that the former owner of a partition has stored for the next
// one; nil for nothing. Call it after ClaimPartition.
func (s *Store) HandOver(ctx context.Context, p Partition) (leases []byte, err error) {
	err = s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error {
			var discard Partition
			return s.serialRead(ctx, s.stmt.handOver, p.args()...).Scan(&discard.Subscription, &discard.Topic, &discard.Number, &leases)
		})
	})
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return nil, fmt.Errorf("read the leases of the former owner of partition %s: %w", p, err)
	}
	return leases, nil
}

// SetHandOver stores the leases of an owner that gives a partition up; nil removes them. ScyllaDB
// refuses more than half of its commit log segment, 16 MiB by default.
func (s *Store) SetHandOver(ctx context.Context, p Partition, epoch int64, leases []byte) error {
	c := change{lowest: math.MaxInt64, text: s.stmt.setHandOver, one: append([]any{leases}, p.args()...)}
	if err := s.write(ctx, p, s.partition(p), epoch, &c); err != nil {
		return fmt.Errorf("hand over the leases of partition %s: %w", p, err)
	}
	return nil
}

// change is one conditional write of a partition.
type change struct {
	// stmts are executed in one batch with the update of the static columns.
	stmts []statement
	// text replaces stmts and that update by one conditional statement with the arguments one
	// after first_offset, without its condition.
	text string
	one  []any
	// lowest is the lowest offset that the change stores. first is the new first_offset,
	// or 0.
	lowest, first int64
}

type statement struct {
	text string
	args []any
}

// write applies a change in an epoch, exactly once.
func (s *Store) write(ctx context.Context, p Partition, pt *partition, epoch int64, c *change) error {
	pt.mu.Lock()
	defer pt.mu.Unlock()
	id := gocql.MustRandomUUID()
	var unknown error
	for budget := s.retry(ctx); ; {
		if err := s.ensureKnownLocked(ctx, p, pt); err != nil {
			return errors.Join(err, unknown)
		}
		if pt.mu.last == id { // an attempt without an answer was applied
			return nil
		}
		if pt.mu.epoch != epoch {
			return errors.Join(fmt.Errorf("%w: epoch %d of %q replaces epoch %d", ErrFenced, pt.mu.epoch, pt.mu.owner, epoch), unknown)
		}
		next := pt.mu.statics
		next.last = id
		next.first = min(max(next.first, c.first), c.lowest)
		applied, err := s.attempt(ctx, p, &pt.mu.statics, &next, c)
		switch {
		case applied && err == nil:
			pt.mu.statics = next
			return nil
		case permanent(err):
			return err
		case cqlcode.ClassifyFate(err) == cqlcode.Unknown:
			unknown = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		pt.mu.known = false
		if !budget.Pause() {
			return errors.Join(err, unknown, context.Cause(ctx))
		}
	}
}

func (s *Store) ensureKnownLocked(ctx context.Context, p Partition, pt *partition) error {
	if pt.mu.known {
		return nil
	}
	st, err := s.readStatics(ctx, p)
	if err != nil {
		return err
	}
	pt.mu.statics, pt.mu.known = st, true
	return nil
}

func (s *Store) attempt(ctx context.Context, p Partition, now, next *statics, c *change) (applied bool, err error) {
	set, condition := []any{next.last, next.first}, []any{now.epoch, now.last}
	if c.one != nil {
		return s.swap(ctx, c.text, append(append(set, c.one...), condition...)...)
	}
	err = s.withTimeout(ctx, func(ctx context.Context) error {
		b := s.session.Batch(gocql.UnloggedBatch).WithContext(ctx).SerialConsistency(s.serial).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
		b.SetConsistency(s.consistency)
		b.Query(s.stmt.write, append(append(set, p.args()...), condition...)...)
		for _, st := range c.stmts {
			b.Query(st.text, st.args...)
		}
		var iter *gocql.Iter
		if applied, iter, err = s.session.MapExecuteBatchCAS(b, map[string]any{}); iter != nil {
			err = errors.Join(err, iter.Close())
		}
		return err
	})
	return applied, err
}
