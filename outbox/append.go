package outbox

import "github.com/gocql/gocql"

// Append adds the INSERT of e to b, for the outbox_messages table of b's
// session. The caller puts its own statements into the same batch; executed as
// a logged batch, all of them are stored or none is:
//
//	b := session.Batch(gocql.LoggedBatch)
//	b.Query("INSERT INTO invoices (id, total) VALUES (?, ?)", id, total)
//	if err := outbox.Append(b, event); err != nil { … }
//	err := b.Exec()
//
// Append itself reaches no database. It returns an *InvalidEventError, and
// leaves b as it was, if e cannot be stored and published.
//
// Write at LOCAL_QUORUM or more: a weaker write can leave the CDC row on one
// replica for good, where the relay may not see it. After a timeout execute the
// same batch again, same event and same timestamp, for some seconds; later with
// the same event and a new timestamp, since a row that is older than the relay's
// confidence window when it comes in is not seen. The relay publishes an event
// id once, however often its row was written.
func Append(b *gocql.Batch, e Event) error { return DefaultTable.Append(b, e) }

// Append is the package's Append for this table. A column of the table that the
// mapping does not name stays unset.
func (t Table) Append(b *gocql.Batch, e Event) error {
	args, err := t.arguments(e)
	if err != nil {
		return err
	}
	b.Query(t.insert, args...)
	return nil
}
