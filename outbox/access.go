package outbox

import "github.com/scylla-outbox/scylla-outbox/outbox/internal/access"

type (
	row      = access.Row
	rowError = access.RowError[Event]
)

// Package rows has the functions of tables and rows that writers do not need.
func init() {
	access.Outbox = &access.Functions[Table, Event, ID, Mapping]{
		Adds:             Table.adds,
		ByAggregate:      Table.byAggregate,
		BytesToken:       Table.bytesToken,
		CheckDelay:       Table.checkDelay,
		Column:           Table.column,
		Columns:          func(t Table) string { return t.columnLayout().list },
		Decode:           Table.decode,
		Descending:       func(t Table) bool { return t.columnLayout().columns[fieldSequence].descending },
		EventHeader:      eventHeader,
		FromRow:          Table.fromRow,
		IDHeaders:        Mapping.idHeaders,
		NewScanner:       func(t Table) access.Scanner[Event] { return t.scanner() },
		Outline:          Table.outline,
		RowToken:         Table.rowToken,
		ScanAggregate:    Table.scanAggregate,
		SelectAggregates: Table.selectAggregates,
		SelectByKey:      Table.selectByKey,
		SelectByToken:    Table.selectByToken,
		SelectPartition:  Table.selectPartition,
		TextToken:        Table.textToken,
		Token:            Table.token,
	}
}
