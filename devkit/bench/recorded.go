package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Recorder records the statements of a session, so that the client alone can send the
// same. It is the session's BatchObserver and QueryObserver.
type Recorder struct {
	mu    sync.Mutex
	sends []send
}

// send is a statement, or a batch of several.
type send struct {
	batch      bool
	statements []string
	values     [][]any
}

// ObserveBatch records a batch.
func (r *Recorder) ObserveBatch(_ context.Context, b gocql.ObservedBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sends = append(r.sends, send{true, b.Statements, b.Values})
}

// ObserveQuery records a statement.
func (r *Recorder) ObserveQuery(_ context.Context, q gocql.ObservedQuery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sends = append(r.sends, send{false, []string{q.Statement}, [][]any{q.Values}})
}

// Take returns the statements recorded since the last call, to be sent with another
// session. Batches are of a type; names are texts that differ from one time to the
// next.
func (r *Recorder) Take(session *gocql.Session, typ gocql.BatchType, names ...string) *Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &Recorded{session: session, typ: typ, names: names, sends: r.sends}
	r.sends = nil
	return out
}

// Recorded contains the statements of a service for one request: the rows it writes, to
// be written again by the client alone. It is safe for concurrent use.
type Recorded struct {
	session *gocql.Session
	typ     gocql.BatchType
	names   []string
	sends   []send
}

// String describes the statements.
func (r *Recorded) String() string {
	batches, rows, conditional := 0, 0, 0
	for _, s := range r.sends {
		if s.batch {
			batches, rows = batches+1, rows+len(s.statements)
		} else {
			conditional++
		}
	}
	text := fmt.Sprintf("%d batch of %d rows", batches, rows)
	if conditional > 0 {
		text = fmt.Sprintf("%d conditional insert and %s", conditional, text)
	}
	return text
}

// Send sends the statements as new rows: every id is replaced by a new one, and the
// names by the names of number i.
func (r *Recorded) Send(ctx context.Context, i int64) error {
	ids := make(map[gocql.UUID]gocql.UUID, 4)
	for _, s := range r.sends {
		if !s.batch {
			applied, err := r.session.Query(s.statements[0], r.values(s.values[0], ids, i)...).WithContext(ctx).MapScanCAS(map[string]any{})
			if err != nil {
				return err
			}
			if !applied {
				return errors.New("the conditional insert was not applied")
			}
			continue
		}
		b := r.session.Batch(r.typ).WithContext(ctx).WithTimestamp(time.Now().UnixMicro())
		for n, stmt := range s.statements {
			b.Query(stmt, r.values(s.values[n], ids, i)...)
		}
		if err := b.Exec(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recorded) values(in []any, ids map[gocql.UUID]gocql.UUID, i int64) []any {
	out := make([]any, len(in))
	another := func(v gocql.UUID) gocql.UUID {
		if _, ok := ids[v]; !ok {
			ids[v] = outbox.NewID().UUID()
		}
		return ids[v]
	}
	for n, v := range in {
		switch v := v.(type) {
		case gocql.UUID:
			out[n] = another(v)
			continue
		case string:
			if id := outbox.IDFromText(v); id.IsUUID() {
				out[n] = another(id.UUID()).String()
				continue
			}
			for _, name := range r.names {
				if v == name {
					out[n] = fmt.Sprintf("%s-%d", name, i)
				}
			}
		}
		if out[n] == nil {
			out[n] = v
		}
	}
	return out
}
