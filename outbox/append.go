package outbox

import "github.com/gocql/gocql"

// Append adds the INSERT of e to b, for the outbox_messages table of b's
// session. The caller adds its own statements to the same batch; executed as a
// logged batch, all or none of them are applied:
//
//	b := session.Batch(gocql.LoggedBatch)
//	b.Query("INSERT INTO invoices (id, total) VALUES (?, ?)", id, total)
//	if err := outbox.Append(b, event); err != nil { … }
//	err := b.Exec()
//
// Append does not access the database. It returns an *InvalidEventError, and
// leaves b unchanged, if e cannot be stored and published.
//
// Write at LOCAL_QUORUM or more: a weaker write can leave the CDC row on a
// single replica, where the relay may never read it. After a timeout, retry the
// same batch with the same event and timestamp for some seconds, and later with
// a new timestamp: the relay does not read a row that becomes visible with a
// timestamp older than its confidence window. The relay publishes an event id
// once, however often its row is written.
func Append(b *gocql.Batch, e Event) error { return DefaultTable.Append(b, e) }

// Append adds the INSERT of e to b for this table. Columns of the table that
// the mapping does not contain stay unset.
func (t Table) Append(b *gocql.Batch, e Event) error {
	args, err := t.arguments(e)
	if err != nil {
		return err
	}
	b.Query(t.insert, args...)
	return nil
}
