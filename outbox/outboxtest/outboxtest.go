// Package outboxtest is for the tests of services that write events.
package outboxtest

import (
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Events returns the events that were appended to a batch, in their order, without a database.
// They are as the relay reads them from the stored rows. Other statements are ignored.
//
// tables are the outbox tables of the service; without any, outbox.DefaultTable is. The error
// names a row that the relay could not publish.
func Events(b *gocql.Batch, tables ...outbox.Table) ([]outbox.Event, error) {
	if b == nil {
		return nil, errors.New("outboxtest: the batch is nil: pass the batch to which the service appended")
	}
	if len(tables) == 0 {
		tables = []outbox.Table{outbox.DefaultTable}
	}
	var events []outbox.Event
	for i := range b.Entries {
		for _, t := range tables {
			e, ok, err := rows.Decode(t, b.Entries[i].Stmt, b.Entries[i].Args)
			if err != nil {
				return nil, fmt.Errorf("statement %d of the batch: %w", i+1, err)
			}
			if ok {
				events = append(events, e)
				break
			}
		}
	}
	return events, nil
}
