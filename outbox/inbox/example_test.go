package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
)

// A consumer keeps the lines of orders in a table of its own. It reads the events with any
// Kafka client, by outbox.FromRecord. It commits an
// offset once Apply has returned nil.
func ExampleFence() {
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Keyspace = "shop"
	session, err := cluster.CreateSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	// CREATE TABLE shop.order_lines (
	//     order_id uuid, line int, sku text, applied_seq bigint static, applied_id text static, applied_epoch bigint static,
	//     PRIMARY KEY (order_id, line))
	fence, err := inbox.NewFence(context.Background(), session, inbox.FenceConfig{Table: "order_lines"})
	if err != nil {
		log.Fatal(err) // names the field and prints the ALTER TABLE statement
	}

	handle := func(ctx context.Context, e outbox.Record) error {
		outcome, err := fence.Apply(ctx, inbox.Event{Key: inbox.Key{e.AggregateID}, Sequence: e.Sequence, Epoch: e.Epoch, ID: e.ID.String()}, func(b *gocql.Batch) error {
			b.Query("INSERT INTO order_lines (order_id, line, sku) VALUES (?, ?, ?)", e.AggregateID, 1, "A-100")
			return nil
		})
		if gap, ok := errors.AsType[*inbox.GapError](err); ok {
			log.Printf("order %s waits for event %d", e.AggregateID, gap.Want)
			return err // deliver it again later; do not commit
		}
		if err == nil {
			log.Printf("order %s, event %d: %s", e.AggregateID, e.Sequence, outcome) // applied or duplicate
		}
		return err
	}
	_ = handle
}

// A consumer posts each event to a web service. The service gets the id as
// idempotency key, because the call is repeated if the consumer dies after it.
func ExampleOnce() {
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Keyspace = "shop"
	session, err := cluster.CreateSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	if err := session.Query(inbox.OnceTable("shop", "calls")).Exec(); err != nil {
		log.Fatal(err)
	}
	once, err := inbox.NewOnce(context.Background(), session, inbox.OnceConfig{Table: "calls", Lease: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}

	handle := func(ctx context.Context, e outbox.Record) error {
		_, _, err := once.Do(ctx, e.ID.String(), func(ctx context.Context) ([]byte, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://example.org/invoices", http.NoBody)
			if err != nil {
				return nil, err
			}
			r.Header.Set("Idempotency-Key", e.ID.String())
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return nil, err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusCreated {
				return nil, fmt.Errorf("invoice refused: %s", res.Status)
			}
			return []byte(res.Header.Get("Location")), nil
		})
		if busy, ok := errors.AsType[*inbox.BusyError](err); ok {
			log.Printf("event %s runs elsewhere for %s at most", e.ID, busy.Left)
		}
		return err // nil: commit the offset
	}
	_ = handle
}

// The table of Once is in the consumer's own keyspace.
func ExampleOnceTable() {
	fmt.Println(inbox.OnceTable("shop", "calls"))
	// Output:
	// CREATE TABLE IF NOT EXISTS shop.calls (
	//     id text PRIMARY KEY,
	//     owner uuid,   -- the call that runs, or ran, the effect
	//     done boolean, -- null while the effect runs
	//     result blob
	// )
}
