package archive

import (
	"context"
	"errors"
	"slices"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Moved is what Move did.
type Moved struct {
	Objects []string
	// Purged letters are removed but for their outline. Refused are those that stand
	// where a purge cannot begin, or that somebody changed meanwhile.
	Purged, Refused int
	Errors          []error // of the first that were refused
}

// moveErrors is how many refusals Move explains.
const moveErrors = 10

// Move purges letters: it writes them to the archive first, or, if a is nil,
// nowhere. It ends at the first error of the archive or the database; what it
// returns is done, and calling it again goes on with the rest.
func (a *Archive) Move(ctx context.Context, store *dlq.Store, events []gocql.UUID, force bool, by dlq.Actor) (Moved, error) {
	var out Moved
	refuse := func(err error) {
		out.Refused++
		if len(out.Errors) < moveErrors {
			out.Errors = append(out.Errors, err)
		}
	}
	for some := range slices.Chunk(events, batch) {
		var letters []dlq.Letter
		var records []Record
		for _, id := range some {
			l, err := store.Read(ctx, id)
			if err == nil {
				err = store.CheckPurge(&l, dlq.Purge{Force: force})
			}
			if errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) {
				refuse(err)
				continue
			}
			if err != nil {
				return out, err
			}
			if a != nil {
				history, err := store.History(ctx, id)
				if err != nil {
					return out, err
				}
				records = append(records, recordOf(&l, history))
			}
			l.Payload, l.Headers, l.Edit = nil, nil, nil
			letters = append(letters, l)
		}
		how := dlq.Purge{Force: force}
		if len(records) > 0 {
			m, err := a.Write(ctx, records, by.Name)
			if err != nil {
				return out, err
			}
			how.Archive = m.Object
			out.Objects = append(out.Objects, m.Object)
		}
		for i := range letters {
			who := by
			who.Version = letters[i].Version
			switch err := store.Purge(ctx, letters[i].EventID, how, who); {
			case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound):
				refuse(err)
			case err != nil:
				return out, err
			default:
				out.Purged++
			}
		}
	}
	return out, nil
}
