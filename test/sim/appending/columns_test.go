package appending

import (
	"errors"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The columns of outbox_messages behind its key.
const columnsOfAnEvent = "event_id uuid, aggregate_type text, event_type text, payload blob, content_type text, headers frozen<map<text, text>>, created_at timestamp, deliver_at timestamp"

// A table that differs from its description is refused at the start, not by each event: with the
// column and the fix.
func TestAppender_NamesTheColumnThatDiffers(t *testing.T) {
	without := func(column string) string { return strings.Replace(columnsOfAnEvent, column+", ", "", 1) }
	tables := []struct {
		name, columns, key string
		column, text       string // of the error; empty for none
	}{
		{"equal", "aggregate_id text, seq bigint, " + columnsOfAnEvent, "aggregate_id, seq", "", ""},
		{"further", "aggregate_id text, seq bigint, note text, version int static, " + columnsOfAnEvent, "aggregate_id, seq", "", ""},
		{"missing", "aggregate_id text, seq bigint, " + without("content_type text"), "aggregate_id, seq", "content_type", "ALTER TABLE outbox.missing ADD content_type text"},
		{"missing_key", "aggregate text, seq bigint, " + columnsOfAnEvent, "aggregate, seq", "aggregate_id", "Mapping.Table"},
		{"other_type", "aggregate_id uuid, seq bigint, " + columnsOfAnEvent, "aggregate_id, seq", "aggregate_id", "has type uuid, and is described with text"},
		{"narrow", "aggregate_id text, seq int, " + columnsOfAnEvent, "aggregate_id, seq", "seq", "has type int, and is described with bigint"},
		{"unreadable", "aggregate_id text, seq bigint, " + strings.Replace(columnsOfAnEvent, "payload blob", "payload list<blob>", 1), "aggregate_id, seq", "payload", "has type list<blob>"},
		{"shared", "aggregate_id text, seq bigint, " + strings.Replace(columnsOfAnEvent, "created_at timestamp", "created_at timestamp static", 1), "aggregate_id, seq", "created_at", "is static"},
		{"unclustered", "aggregate_id text, seq bigint, " + columnsOfAnEvent, "aggregate_id, event_id", "seq", "use a primary key that begins with ((aggregate_id), seq)"},
		{"apart", "aggregate_id text, seq bigint, " + columnsOfAnEvent, "(aggregate_type, aggregate_id), seq", "seq", "use a primary key that begins with ((aggregate_id), seq)"},
		{"longer", "aggregate_id text, seq bigint, " + columnsOfAnEvent, "aggregate_id, seq, event_id", "event_id", "whose primary key ends with the sequence number"},
		{"foreign_key", "aggregate_id text, seq bigint, region text, " + columnsOfAnEvent, "aggregate_id, seq, region", "region", "no field of an event is mapped to it"},
	}
	eachVersion(t, "", func(t *testing.T, w world.World) {
		for _, tt := range tables {
			if err := w.Session.Query("CREATE TABLE " + tt.name + " (" + tt.columns + ", PRIMARY KEY (" + tt.key + "))").Exec(); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			table, err := outbox.NewTable("outbox", tt.name)
			if err != nil {
				t.Fatal(err)
			}
			_, err = outbox.NewAppender(t.Context(), w.Session, table, outbox.AppenderConfig{})
			if tt.column == "" {
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				continue
			}
			var mapping *outbox.MappingError
			if !errors.As(err, &mapping) || mapping.Column != tt.column || mapping.Table != table.String() || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v, want a *MappingError of column %s with %q", tt.name, err, tt.column, tt.text)
			}
		}
		if _, err := outbox.NewAppender(t.Context(), w.Session, outbox.DefaultTable, outbox.AppenderConfig{}); err != nil {
			t.Errorf("outbox_messages: %v", err)
		}
	})
}

// A table that was altered after it was described is refused as a whole: with each column.
func TestAppender_NamesEveryColumnThatWasDropped(t *testing.T) {
	eachVersion(t, "", func(t *testing.T, w world.World) {
		if err := w.Session.Query("CREATE TABLE ledger (account text, n int, id uuid, kind text, type text, payload text, note text, PRIMARY KEY (account, n))").Exec(); err != nil {
			t.Fatal(err)
		}
		columns, err := outbox.ReadColumns(t.Context(), w.Session, "outbox", "ledger")
		if err != nil {
			t.Fatal(err)
		}
		table, err := outbox.Mapping{Columns: map[string]string{
			"aggregate_id": "account", "seq": "n", "event_id": "id", "aggregate_type": "kind", "event_type": "type",
		}, RecordHeaders: map[string]string{"note": "note"}}.Table("", "ledger", columns)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.NewAppender(t.Context(), w.Session, table, outbox.AppenderConfig{}); err != nil {
			t.Errorf("before: %v", err)
		}
		if err := w.Session.Query("ALTER TABLE ledger DROP (note, kind)").Exec(); err != nil {
			t.Fatal(err)
		}
		_, err = outbox.NewAppender(t.Context(), w.Session, table, outbox.AppenderConfig{})
		for _, column := range []string{"column kind is missing", "column note is missing"} {
			if err == nil || !strings.Contains(err.Error(), column) {
				t.Errorf("after: %v, want %q", err, column)
			}
		}
	})
}
