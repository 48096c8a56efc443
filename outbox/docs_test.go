package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// The functions below contain the Go code of the documents, so that the compiler reads it with
// the driver of this module. That of tests with embedded engines is in the test of
// examples/service, which is a module of its own.

func openAccount(session *gocql.Session, id, eventID outbox.ID, owner string, payload []byte) error {
	batch := session.NewBatch(gocql.LoggedBatch)
	batch.Query("INSERT INTO accounts (id, owner) VALUES (?, ?)", id, owner)
	err := outbox.Append(batch, outbox.Event{
		ID: eventID, AggregateID: id, Sequence: 1, AggregateType: "account", Type: "AccountOpened",
		Payload: payload, CreatedAt: time.Now(),
	})
	if err == nil {
		err = session.ExecuteBatch(batch) // both rows are stored, or neither
	}
	return err
}

func appendOne(ctx context.Context, session *gocql.Session, e outbox.Event) (outbox.Event, error) {
	appender, err := outbox.NewAppender(ctx, session, outbox.DefaultTable, outbox.AppenderConfig{})
	// e is event version+1, computed from your row at that version
	appended, err := appender.AppendNext(ctx, e, outbox.AppendOptions{})
	return appended.Event, err
}

var (
	load  func(ctx context.Context, id outbox.ID) (balance, version int64, err error)
	apply func(context.Context, outbox.Event) error
)

func deposit(ctx context.Context, session *gocql.Session, id, eventID outbox.ID, amount int64) error {
	appender, err := outbox.NewAppender(ctx, session, outbox.DefaultTable, outbox.AppenderConfig{})
	if err != nil {
		return err
	}
	for {
		balance, version, err := load(ctx, id) // your rows, at version n
		if err != nil {
			return err
		}
		// The event is computed from them, with the same ID in each round.
		r, err := appender.AppendNext(ctx, outbox.Event{
			ID: eventID, AggregateID: id, Sequence: version + 1, AggregateType: "account", Type: "BalanceChanged",
			Payload: fmt.Appendf(nil, `{"balance": %d}`, balance+amount), CreatedAt: time.Now(),
		}, outbox.AppendOptions{})
		var conflict *outbox.ConflictError
		switch {
		case err == nil:
			return apply(ctx, r.Event) // the event is stored: your rows follow
		case !errors.As(err, &conflict):
			return err
		}
		for _, other := range conflict.Events { // your rows lag behind: apply these events first
			if err := apply(ctx, other); err != nil {
				return err
			}
		}
	}
}

func sweep(ctx context.Context, appender *outbox.Appender) {
	for ctx.Err() == nil {
		swept, err := appender.Sweep(ctx, outbox.Rows{
			AggregateType: "account",
			Version: func(ctx context.Context, last outbox.Event) (int64, error) {
				_, version, err := load(ctx, last.AggregateID) // 0 without rows
				return version, err
			},
			Apply: apply,
		})
		if err != nil || swept.Late { // the other parts are swept; a part was swept too late
			log.Print("sweep: ", swept, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(time.Minute, time.Until(swept.Next))):
		}
	}
}

func onePartition(session *gocql.Session, table outbox.Table, e outbox.Event, id gocql.UUID, balance, n int64) (bool, error) {
	b := session.NewBatch(gocql.LoggedBatch).RetryPolicy(&gocql.SimpleRetryPolicy{NumRetries: 0})
	b.Query("UPDATE shop.accounts SET balance = ?, version = ? WHERE aggregate_id = ? IF version = ?", balance, n+1, id, n) // IF version = null for the first
	err := table.Append(b, e)                                                                                               // Sequence n+1
	applied, _, err := session.MapExecuteBatchCAS(b, map[string]any{})
	return applied, err
}

func ownTable(ctx context.Context, session *gocql.Session, batch *gocql.Batch, payload []byte) error {
	columns, err := outbox.ReadColumns(ctx, session, "shop", "events")
	table, err := outbox.Mapping{Preset: outbox.PresetDebezium, Columns: map[string]string{"created_at": "happened_at"}}.Table("shop", "events", columns)
	err = table.Append(batch, outbox.Event{ID: outbox.IDFromUUID(gocql.TimeUUID()), AggregateID: outbox.IDFromText("order-42"), AggregateType: "order", Type: "OrderPlaced", Payload: payload, CreatedAt: time.Now()})
	return err
}

func tenants(ctx context.Context, session *gocql.Session, batch *gocql.Batch, payload []byte) error {
	columns, err := outbox.ReadColumns(ctx, session, "shop", "parcel_events")
	table, err := outbox.Mapping{AggregateType: "parcel", Columns: map[string]string{
		"aggregate_id": "tenant, parcel", "seq": "n", "event_id": "id",
		"event_type": "kind", "payload": "body", "headers": "meta", "created_at": "at",
	}}.Table("shop", "parcel_events", columns)
	err = table.Append(batch, outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText("acme:42"), Sequence: 1, AggregateType: "parcel", Type: "ParcelArrived",
		Headers: map[string]string{"trace": "t1"}, Payload: payload, CreatedAt: time.Now(),
	})
	return err
}

func fenced(ctx context.Context, session *gocql.Session, e outbox.Record) (inbox.Outcome, error) {
	// ALTER TABLE shop.order_lines ADD (applied_seq bigint static, applied_id text static, applied_epoch bigint static)
	fence, err := inbox.NewFence(ctx, session, inbox.FenceConfig{Keyspace: "shop", Table: "order_lines"})

	outcome, err := fence.Apply(ctx, inbox.Event{Key: inbox.Key{e.AggregateID}, Sequence: e.Sequence, Epoch: e.Epoch, ID: e.ID.String()}, func(b *gocql.Batch) error {
		b.Query("INSERT INTO shop.order_lines (order_id, line, sku) VALUES (?, ?, ?)", e.AggregateID, 1, "A-100")
		return nil // an error changes nothing, and Apply returns it
	})
	return outcome, err
}

var charge func(ctx context.Context, e outbox.Record, header string) ([]byte, error)

func onceOnly(ctx context.Context, session *gocql.Session, e outbox.Record) ([]byte, bool, error) {
	once, err := inbox.NewOnce(ctx, session, inbox.OnceConfig{Keyspace: "shop", Table: "calls", Lease: 30 * time.Second})

	result, first, err := once.Do(ctx, e.ID.String(), func(ctx context.Context) ([]byte, error) {
		return charge(ctx, e, "Idempotency-Key: "+e.ID.String())
	})
	return result, first, err
}

func largePayload(ctx context.Context, batch *gocql.Batch, event outbox.Event) error {
	store, err := payload.NewFolder("/mnt/payloads")            // or an implementation of payload.Store for a bucket
	event, err = outbox.MovePayload(ctx, store, event, 256<<10) // above 256 KiB
	err = outbox.Append(batch, event)
	return err
}

// The Go code of the documents is that of this file or of the example's test, line by line but
// for comments.
func TestDocs_GoIsCompiled(t *testing.T) {
	t.Parallel()
	_ = []any{openAccount, appendOne, deposit, sweep, onePartition, ownTable, fenced, onceOnly, largePayload}
	source, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../examples/service/test/service_test.go")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the module is not in its repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	compiled, blocks := code(string(source)+string(example)), 0
	calls := map[string]bool{"README.md": true, "docs/quickstart.md": true}
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		page, err := os.ReadFile(path)
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		for _, block := range strings.Split(string(page), "```go\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if blocks++; !strings.Contains(compiled, code(block)) {
				t.Errorf("%s has code that is not in docs_test.go or the example's test, so nothing compiles it:\n%s", name, block)
			}
		}
		for _, call := range []string{"outbox.Append(", "appender.AppendNext("} {
			if calls[name] && !strings.Contains(string(page), call) {
				t.Errorf("%s does not show %s…)", name, call)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if blocks < 13 {
		t.Errorf("found %d blocks of Go", blocks)
	}
}

// code returns the lines of Go source without comments, empty lines and space for alignment.
func code(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if before, _, found := strings.Cut(" "+strings.ReplaceAll(line, "\t", " "), " //"); found {
			line = before
		}
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
