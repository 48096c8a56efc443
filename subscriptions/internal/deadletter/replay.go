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
// longer is still delivered, and its dead letter can be changed then. The message follows the
// change: see Replayer.
const claimFor = 24 * time.Hour

// servedWithin is the time in which the owner of a partition acts on a request. After it
// Messages.Unserved decides whether anybody can.
const servedWithin = time.Minute

// Store stores dead letters; *dlq.Store implements it.
type Store interface {
	Requests(ctx context.Context, table string, mine func(*dlq.Request) bool) ([]dlq.Request, error)
	Done(ctx context.Context, requests ...dlq.Request) error
	Read(ctx context.Context, event gocql.UUID) (dlq.DeadLetter, error)
	Claim(ctx context.Context, event gocql.UUID, owner string, lease time.Duration) (dlq.DeadLetter, error)
	Resolve(ctx context.Context, event gocql.UUID, owner string, how dlq.Outcome) error
	Fail(ctx context.Context, event gocql.UUID, owner string, f dlq.Failure) (dlq.Status, error)
}

// State is what an instance knows about the replay of a dead letter.
type State uint8

// The states.
const (
	// NotOwned: another instance owns the partition, or none.
	NotOwned State = iota
	// Free: there is no replay of a dead letter of this offset.
	Free
	// Busy: there is another replay, or one that is leased or ends. The request waits for its
	// end.
	Busy
	// Accepted: the replay is in memory and not stored yet.
	Accepted
	// Stored: the replay is stored, and survives this process.
	Stored
)

// Replay identifies the message of a replay: the dead letter, and its edit that the message
// contains, zero for the original event.
type Replay struct {
	Topic              string
	Partition          int32
	Offset             int64
	DeadLetter, Edited gocql.UUID
}

// Messages are the messages of the partitions that this instance owns.
type Messages interface {
	// Replayed returns the state of the message of a dead letter.
	Replayed(r Replay) State
	// Replay adds a record as a message without deliveries, which is stored before it is
	// delivered. It does nothing unless the state is Free.
	Replay(record *kgo.Record, r Replay)
	// Cancel removes the message of a dead letter, whatever its edit, unless it is leased or
	// ends. It leaves the dead letter as it is.
	Cancel(r Replay)
	// Unserved returns the reason why no instance can own the partition; nil if one can.
	Unserved(ctx context.Context, topic string, partition int32) error
	// Owns reports whether this instance owns the partition.
	Owns(topic string, partition int32) bool
}

// Replayer redelivers the dead letters of a subscription that operators replay. All exported
// fields are required and do not change, and its methods may be called concurrently, by any
// number of instances; Poll by one goroutine.
//
// A message belongs to the request that made it. A later request for the same dead letter,
// which is possible when the claim has expired, adopts a message with the same content, and
// replaces one with another content. Any other decision of an operator removes the message,
// unless a consumer has it; the result of that delivery does not change the decision.
type Replayer struct {
	// Table is the table of the dead letters, and Owner the owner of their claims, the
	// incarnation of the subscription.
	Table, Owner string
	Store        Store
	Messages     Messages

	elsewhere map[gocql.UUID]partition // of requests for partitions that this instance did not own
}

type partition struct {
	topic  string
	number int32
}

// Poll acts on the operators' requests: it makes messages of pending dead letters whose
// partition this instance owns, and refuses the ones that nobody can deliver. It is cheap
// enough for a call every second. After an error the rest of the requests is acted on by the
// next call.
func (r *Replayer) Poll(ctx context.Context) error {
	known, now := r.elsewhere, time.Now()
	r.elsewhere = make(map[gocql.UUID]partition)
	requests, err := r.Store.Requests(ctx, r.Table, func(q *dlq.Request) bool {
		at, ok := known[q.ID]
		if !ok || r.Messages.Owns(at.topic, at.number) || now.Sub(q.ID.Time()) > servedWithin && r.Messages.Unserved(ctx, at.topic, at.number) != nil {
			return true
		}
		r.elsewhere[q.ID] = at // no request waits behind requests of other instances
		return false
	})
	if err != nil {
		r.elsewhere = known
		return err
	}
	var errs []error
	var done []dlq.Request
	for i := range requests {
		finished, err := r.act(ctx, &requests[i])
		if finished {
			done = append(done, requests[i])
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
func (r *Replayer) act(ctx context.Context, q *dlq.Request) (bool, error) {
	if q.Entry.Status == dlq.Pending && time.Until(q.Entry.NextAttempt) > 0 {
		return false, nil
	}
	l, err := r.Store.Read(ctx, q.EventID)
	if errors.Is(err, dlq.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	at, err := ReadPlace(&l)
	if err == nil && at.Incarnation != r.Owner {
		err = fmt.Errorf("it belongs to %s, a deleted subscription of this name; publish the event again, or discard it", at.Incarnation)
	}
	if err != nil {
		return r.refuse(ctx, &l, err)
	}
	p := Replay{at.Topic, at.Partition, at.Offset, l.EventID, l.EditedID}
	state := r.Messages.Replayed(p)
	if state == NotOwned {
		if time.Since(q.ID.Time()) > servedWithin {
			if reason := r.Messages.Unserved(ctx, at.Topic, at.Partition); reason != nil {
				return r.refuse(ctx, &l, reason)
			}
		}
		r.elsewhere[q.ID] = partition{at.Topic, at.Partition}
		return false, nil
	}
	if !r.wants(&l) {
		r.Messages.Cancel(p)
		return true, nil
	}
	switch state {
	case Free:
	case Stored:
		if l.Status == dlq.Pending { // requested again: the message is that of the new request
			if _, err := r.Store.Claim(ctx, l.EventID, r.Owner, claimFor); err != nil {
				return r.ignoreEnded(err)
			}
		}
		return true, nil
	case Busy:
		r.Messages.Cancel(p) // a replay of another content of this dead letter
		return false, nil
	default:
		return false, nil
	}
	// Also for a dead letter that a former owner of the partition has claimed and not
	// stored. The claim returns the last edit.
	if l, err = r.Store.Claim(ctx, l.EventID, r.Owner, claimFor); err != nil {
		return r.ignoreEnded(err)
	}
	record, err := Record(&l)
	if err != nil {
		return r.refuse(ctx, &l, err)
	}
	p.Edited = l.EditedID
	r.Messages.Replay(record, p)
	return false, nil
}

// wants reports whether a dead letter waits for its delivery by this subscription.
func (r *Replayer) wants(l *dlq.DeadLetter) bool {
	return l.Status == dlq.Pending || l.Status == dlq.Processing && l.ClaimedBy == r.Owner
}

// refuse makes a dead letter suspended that nobody can deliver.
func (r *Replayer) refuse(ctx context.Context, l *dlq.DeadLetter, reason error) (bool, error) {
	if !r.wants(l) {
		return true, nil
	}
	if _, err := r.Store.Claim(ctx, l.EventID, r.Owner, claimFor); err != nil {
		return r.ignoreEnded(err)
	}
	if err := r.FailReplay(ctx, l.EventID, dlq.Failure{Class: ClassReplay, Text: reason.Error(), Waiting: "nobody can deliver it: " + reason.Error()}); err != nil {
		return false, err
	}
	return true, nil
}

// ignoreEnded returns true for a dead letter that another change has ended meanwhile.
func (r *Replayer) ignoreEnded(err error) (bool, error) {
	if errors.Is(err, dlq.ErrNotFound) {
		return true, nil
	}
	if errors.Is(err, dlq.ErrRefused) { // the next call reads its new status
		return false, nil
	}
	return false, err
}

// End makes the dead letters suspended that wait for the deliveries of a subscription which was
// deleted: nobody delivers them any more.
func (r *Replayer) End(ctx context.Context, chains func(ctx context.Context, table string, f func(dlq.ChainEntry) error) error) error {
	var claimed []gocql.UUID
	err := chains(ctx, r.Table, func(e dlq.ChainEntry) error {
		if e.Status == dlq.Processing && e.ClaimedBy == r.Owner {
			claimed = append(claimed, e.EventID)
		}
		return nil
	})
	for _, id := range claimed {
		err = errors.Join(err, r.FailReplay(ctx, id, dlq.Failure{Class: ClassReplay, Text: "the subscription was deleted", Waiting: "nobody can deliver it: the subscription was deleted"}))
	}
	return err
}

// ResolveReplay resolves the dead letter of a message that was delivered again and
// acknowledged, also if an operator has requested it once more since the claim has expired.
// Call it before the message is removed, and again after an error. A dead letter of which an
// operator has decided otherwise, or that has another content, stays as it is.
func (r *Replayer) ResolveReplay(ctx context.Context, p Replay) error {
	how := dlq.Outcome{
		Kind: dlq.OutcomeReplayed, Topic: p.Topic, Partition: p.Partition, Offset: p.Offset, Note: "acknowledged by a consumer of " + r.Table,
	}
	err := r.Store.Resolve(ctx, p.DeadLetter, r.Owner, how)
	if errors.Is(err, dlq.ErrRefused) {
		err = r.resolveRequested(ctx, p, how)
	}
	if err := ignoreUnclaimed(err); err != nil {
		return fmt.Errorf("resolve dead letter %s: %w", p.DeadLetter, err)
	}
	return nil
}

// resolveRequested resolves a dead letter that is requested again and has the content of the
// message.
func (r *Replayer) resolveRequested(ctx context.Context, p Replay, how dlq.Outcome) error {
	l, err := r.Store.Read(ctx, p.DeadLetter)
	if err != nil || l.Status != dlq.Pending || l.EditedID != p.Edited {
		return err
	}
	if _, err := r.Store.Claim(ctx, p.DeadLetter, r.Owner, claimFor); err != nil {
		return err
	}
	return r.Store.Resolve(ctx, p.DeadLetter, r.Owner, how)
}

// FailReplay makes the dead letter of a message suspended again whose deliveries have failed again.
// Call it before the message is removed, and again after an error.
func (r *Replayer) FailReplay(ctx context.Context, deadLetter gocql.UUID, f dlq.Failure) error {
	f.Final = true
	if f.Waiting == "" {
		f.Waiting = "the replay failed: replay it again, edit or discard it"
	}
	_, err := r.Store.Fail(ctx, deadLetter, r.Owner, f)
	if err := ignoreUnclaimed(err); err != nil {
		return fmt.Errorf("fail dead letter %s: %w", deadLetter, err)
	}
	return nil
}

// ignoreUnclaimed returns nil for the error of a dead letter that is no longer claimed.
func ignoreUnclaimed(err error) error {
	if errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	return err
}
