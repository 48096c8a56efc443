package epochs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Epochs are the epochs of an outbox table, oldest first, as the Unix times of their begins in
// seconds.
type Epochs []int64

// Of returns the epoch of a row that was written at a time in microseconds, 0 before the first one.
func (e Epochs) Of(written int64) int64 {
	for _, epoch := range slices.Backward(e) {
		if written >= time.Unix(epoch, 0).UnixMicro() {
			return epoch
		}
	}
	return 0
}

// Current returns the latest epoch, 0 without any.
func (e Epochs) Current() int64 {
	if len(e) == 0 {
		return 0
	}
	return e[len(e)-1]
}

// Restored returns the time before which the database's rows may come from a backup: when the
// current epoch was begun, or later. Zero without an epoch.
func (e Epochs) Restored() time.Time {
	if len(e) == 0 {
		return time.Time{}
	}
	return time.Unix(e.Current(), 0).Add(clockError)
}

// Read returns the epochs of a table. keyspace is that of the relay, table the name with its
// keyspace.
func Read(ctx context.Context, session *gocql.Session, keyspace, table string) (Epochs, error) {
	iter := session.Query("SELECT epoch FROM "+keyspace+".relay_epochs WHERE table_name = ?", table).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).Iter()
	var all Epochs
	for n := int64(0); iter.Scan(&n); {
		all = append(all, n)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the epochs of %s: %w", table, err)
	}
	return all, nil
}

// Epoch is an epoch of a table, and who began it.
type Epoch struct {
	// Epoch is the Unix time since which its rows are written, in seconds.
	Epoch int64     `json:"epoch"`
	SetAt time.Time `json:"set_at"`
	SetBy string    `json:"set_by"`
	// Reason is the reason of the operator.
	Reason string `json:"reason"`
}

// Latest returns the last epoch of a table, nil without any. It completes a Begin whose outcome is
// unknown, or prevents it.
func Latest(ctx context.Context, session *gocql.Session, keyspace, table string) (*Epoch, error) {
	iter := session.Query("SELECT epoch, set_at, set_by, reason FROM "+keyspace+".relay_epochs WHERE table_name = ?", table).
		WithContext(ctx).Consistency(gocql.Serial).Idempotent(true).Iter()
	var last *Epoch
	for e := (Epoch{}); iter.Scan(&e.Epoch, &e.SetAt, &e.SetBy, &e.Reason); {
		last = &Epoch{e.Epoch, e.SetAt.UTC(), e.SetBy, e.Reason}
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the last epoch of %s: %w", table, err)
	}
	return last, nil
}

// clockError is by how much the clocks of writers are behind the database's at most.
const clockError = 30 * time.Second

// Next returns the epoch that begins at now, a time of the database: later than the last write of a
// row and than other epochs. It may begin after now, for which the caller waits.
func Next(now, lastWrite time.Time, others ...int64) int64 {
	next := max(now.Add(-clockError).Unix(), 1)
	if !lastWrite.IsZero() {
		next = max(next, lastWrite.Unix()+1)
	}
	for _, n := range others {
		next = max(next, n+1)
	}
	return next
}

// ErrBegun is returned by Begin if previous is not the last epoch any more.
var ErrBegun = errors.New("another epoch has begun")

// Begin begins an epoch of a table after the previous one, which is 0 for none. The relays of all
// data centers read it once it returns nil. After an error that is not ErrBegun the outcome is
// unknown; Latest shows it.
func Begin(ctx context.Context, session *gocql.Session, keyspace, table string, previous, epoch int64, by, reason string) error {
	var expected *int64
	if previous != 0 {
		expected = &previous
	}
	begun, err := session.Query("UPDATE "+keyspace+".relay_epochs SET latest = ?, set_at = toTimestamp(now()), set_by = ?, reason = ? WHERE table_name = ? AND epoch = ? IF latest = ?",
		epoch, by, reason, table, epoch, expected).
		WithContext(ctx).Consistency(gocql.EachQuorum).SerialConsistency(gocql.Serial).MapScanCAS(make(map[string]any))
	if err != nil {
		return fmt.Errorf("begin epoch %d of %s: %w", epoch, table, err)
	}
	if !begun {
		return fmt.Errorf("begin epoch %d of %s: %w", epoch, table, ErrBegun)
	}
	return nil
}
