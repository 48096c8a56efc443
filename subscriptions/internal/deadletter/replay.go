package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// ClassReplay is the error class of a dead letter that cannot be delivered again.
const ClassReplay = "replay"

// claimFor is the duration of the claim of a dead letter while its message is delivered
// again. The claim prevents changes by operators. It is not extended: a message that waits
// longer is still delivered, and its dead letter can be changed then.
const claimFor = 24 * time.Hour

// Store stores dead letters; *dlq.Store implements it.
type Store interface {
	Requests(ctx context.Context, table string, mine func(aggregate string) bool) ([]dlq.Request, error)
	Done(ctx context.Context, requests ...dlq.Request) error
	Read(ctx context.Context, event gocql.UUID) (dlq.DeadLetter, error)
	Claim(ctx context.Context, event gocql.UUID, owner string, lease time.Duration) (dlq.DeadLetter, error)
	Resolve(ctx context.Context, event gocql.UUID, owner string, how dlq.Outcome) error
	Fail(ctx context.Context, event gocql.UUID, owner string, f dlq.Failure) (dlq.Status, error)
}

// State is what an instance knows about the message of a dead letter.
type State uint8

// The states.
const (
	// NotOwned: another instance owns the partition, or none.
	NotOwned State = iota
	// Free: there is no message at the offset.
	Free
	// Busy: there is a message at the offset that is no replay of the dead letter, as
	// after a seek. The replay waits for its end.
	Busy
	// Accepted: the replay is in memory and not stored yet.
	Accepted
	// Stored: the replay is stored, and survives this process.
	Stored
)

// Messages are the messages of the partitions that this instance owns.
type Messages interface {
	// Replayed returns the state of the message of a dead letter.
	Replayed(topic string, partition int32, offset int64, deadLetter gocql.UUID) State
	// Replay adds a record as a message without deliveries, which is stored before it is
	// delivered. It does nothing unless the state is Free.
	Replay(r *kgo.Record, deadLetter gocql.UUID)
}

// Replayer redelivers the dead letters of a subscription that operators replay. It has no
// state of its own: all fields are required and do not change, and its methods may be called
// concurrently, by any number of instances.
type Replayer struct {
	// Table is the table of the dead letters, and Owner the owner of their claims, the
	// incarnation of the subscription.
	Table, Owner string
	Store        Store
	Messages     Messages
}

// Poll acts on the operators' requests: it makes messages of pending dead letters whose
// partition this instance owns. It is cheap enough for a call every second. After an error
// the rest of the requests is acted on by the next call.
func (r *Replayer) Poll(ctx context.Context) error {
	requests, err := r.Store.Requests(ctx, r.Table, nil)
	if err != nil {
		return err
	}
	var errs []error
	var done []dlq.Request
	for _, q := range requests {
		finished, err := r.act(ctx, &q.Entry)
		if finished {
			done = append(done, q)
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(done) > 0 {
		errs = append(errs, r.Store.Done(ctx, done...))
	}
	return errors.Join(errs...)
}

// act makes the message of a dead letter. It returns true once nothing remains to be done:
// the message is stored, or the dead letter needs none.
func (r *Replayer) act(ctx context.Context, e *dlq.ChainEntry) (bool, error) {
	pending := e.Status == dlq.Pending
	if !pending && (e.Status != dlq.Processing || e.ClaimedBy != r.Owner) {
		return true, nil
	}
	if pending && time.Until(e.NextAttempt) > 0 {
		return false, nil
	}
	l, err := r.Store.Read(ctx, e.EventID)
	if errors.Is(err, dlq.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	topic, partition, offset, err := Place(&l)
	if err != nil {
		return r.refuse(ctx, l.EventID, err)
	}
	switch r.Messages.Replayed(topic, partition, offset, l.EventID) {
	case Free:
	case Stored:
		return true, nil
	default:
		return false, nil
	}
	// Also for a dead letter that a former owner of the partition has claimed and not
	// stored. The claim returns the last edit.
	if l, err = r.Store.Claim(ctx, l.EventID, r.Owner, claimFor); err != nil {
		return r.changed(err)
	}
	record, err := Record(&l)
	if err != nil {
		return r.refuse(ctx, l.EventID, err)
	}
	r.Messages.Replay(record, l.EventID)
	return false, nil
}

// refuse makes a dead letter manual that cannot become a message.
func (r *Replayer) refuse(ctx context.Context, id gocql.UUID, reason error) (bool, error) {
	if _, err := r.Store.Claim(ctx, id, r.Owner, claimFor); err != nil {
		return r.changed(err)
	}
	if err := r.Failed(ctx, id, dlq.Failure{Class: ClassReplay, Text: reason.Error()}); err != nil {
		return false, err
	}
	return true, nil
}

// changed returns true for a dead letter that another change has ended meanwhile.
func (r *Replayer) changed(err error) (bool, error) {
	if errors.Is(err, dlq.ErrNotFound) {
		return true, nil
	}
	if errors.Is(err, dlq.ErrRefused) { // the next call reads its new status
		return false, nil
	}
	return false, err
}

// Acknowledged resolves the dead letter of a message that was delivered again and
// acknowledged. Call it before the message is removed, and again after an error. A dead
// letter that was changed otherwise, after its claim has expired, stays as it is.
func (r *Replayer) Acknowledged(ctx context.Context, topic string, partition int32, offset int64, deadLetter gocql.UUID) error {
	err := r.Store.Resolve(ctx, deadLetter, r.Owner, dlq.Outcome{
		Kind: dlq.OutcomeReplayed, Topic: topic, Partition: partition, Offset: offset, Note: "acknowledged by a consumer of " + r.Table,
	})
	if err := ended(err); err != nil {
		return fmt.Errorf("resolve dead letter %s: %w", deadLetter, err)
	}
	return nil
}

// Failed makes the dead letter of a message manual again whose deliveries have failed again.
// Call it before the message is removed, and again after an error.
func (r *Replayer) Failed(ctx context.Context, deadLetter gocql.UUID, f dlq.Failure) error {
	f.Final = true
	if f.Waiting == "" {
		f.Waiting = "the replay failed: replay it again, edit or discard it"
	}
	_, err := r.Store.Fail(ctx, deadLetter, r.Owner, f)
	if err := ended(err); err != nil {
		return fmt.Errorf("fail dead letter %s: %w", deadLetter, err)
	}
	return nil
}

// ended returns nil for the error of a dead letter that is no longer claimed.
func ended(err error) error {
	if errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	return err
}
