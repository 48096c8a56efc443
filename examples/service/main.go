// Command service keeps accounts and publishes each change as an event: a service of its own,
// with its own tables (schema.cql) and its relay (relay.yaml). README.md has the commands.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

//go:embed schema.cql
var schema string

// account is a row of bank.accounts and the payload of its events.
type account struct {
	ID      outbox.ID `json:"id"`
	Owner   string    `json:"owner"`
	Cents   int64     `json:"cents"`
	Version int64     `json:"version"` // the number of its last event
}

type service struct {
	session  *gocql.Session
	table    outbox.Table
	appender *outbox.Appender
}

func main() {
	scylla := flag.String("scylla", "127.0.0.1:9042", "address of ScyllaDB")
	addr := flag.String("addr", "127.0.0.1:8085", "address of this service")
	flag.Parse()
	ctx := context.Background()
	cluster := gocql.NewCluster(*scylla)
	cluster.Consistency, cluster.Timeout = gocql.LocalQuorum, 10*time.Second
	session, err := cluster.CreateSession()
	if err != nil {
		log.Fatalf("connect to %s: %v", *scylla, err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(schema), ";\n") {
		if err := session.Query(statement).Exec(); err != nil {
			log.Fatalf("create the tables: %v", err)
		}
	}
	s := &service{session: session}
	if s.table, err = outbox.NewTable("bank", "account_events"); err != nil {
		log.Fatal(err)
	}
	if s.appender, err = outbox.NewAppender(ctx, session, s.table, outbox.AppenderConfig{}); err != nil {
		log.Fatal(err)
	}
	go s.sweep(ctx)
	http.HandleFunc("POST /accounts", s.open)
	http.HandleFunc("POST /accounts/{id}/deposits", s.deposit)
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, nil))
}

// event returns the event of an account at its version.
func event(id outbox.ID, eventType string, a account) outbox.Event {
	payload, _ := json.Marshal(a) // numbers and texts
	return outbox.Event{
		ID: id, AggregateID: a.ID, Sequence: a.Version, AggregateType: "account", Type: eventType, Payload: payload, CreatedAt: time.Now(),
	}
}

// open stores a new account and its first event in one logged batch: both, or neither.
func (s *service) open(w http.ResponseWriter, r *http.Request) {
	var a account
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || a.Owner == "" {
		http.Error(w, `send {"owner":"Ada"}`, http.StatusBadRequest)
		return
	}
	a.ID, a.Cents, a.Version = outbox.NewID(), 0, 1
	batch := s.session.NewBatch(gocql.LoggedBatch).WithContext(r.Context())
	batch.Query("INSERT INTO bank.accounts (id, owner, cents, version) VALUES (?, ?, ?, ?)", a.ID, a.Owner, a.Cents, a.Version)
	err := s.table.Append(batch, event(outbox.NewID(), "AccountOpened", a))
	if err == nil {
		err = s.session.ExecuteBatch(batch)
	}
	answer(w, a, err)
}

// deposit stores the next event of an account, and then its row. Concurrent deposits of several
// processes conflict; each is applied once.
func (s *service) deposit(w http.ResponseWriter, r *http.Request) {
	id, err := gocql.ParseUUID(r.PathValue("id"))
	var in struct{ Cents int64 }
	if err != nil || json.NewDecoder(r.Body).Decode(&in) != nil || in.Cents <= 0 {
		http.Error(w, `send {"cents":1250} to /accounts/ID/deposits`, http.StatusBadRequest)
		return
	}
	eventID := outbox.NewID() // the same in each round
	for {
		a, err := s.load(r.Context(), outbox.IDFromUUID(id))
		if err != nil {
			answer(w, a, err)
			return
		}
		a.Cents, a.Version = a.Cents+in.Cents, a.Version+1
		appended, err := s.appender.AppendNext(r.Context(), event(eventID, "MoneyDeposited", a), outbox.AppendOptions{})
		var conflict *outbox.ConflictError
		if !errors.As(err, &conflict) {
			if err == nil {
				err = s.apply(r.Context(), appended.Event)
			}
			answer(w, a, err)
			return
		}
		for _, other := range conflict.Events { // the row lags behind these
			if err := s.apply(r.Context(), other); err != nil {
				answer(w, a, err)
				return
			}
		}
	}
}

// load reads the row of an account.
func (s *service) load(ctx context.Context, id outbox.ID) (a account, err error) {
	a.ID = id
	err = s.session.Query("SELECT owner, cents, version FROM bank.accounts WHERE id = ?", id).WithContext(ctx).Scan(&a.Owner, &a.Cents, &a.Version)
	return a, err
}

// apply writes the row of an account at the version of an event, unless the row has it already.
func (s *service) apply(ctx context.Context, e outbox.Event) error {
	var a account
	if err := json.Unmarshal(e.Payload, &a); err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	_, err := s.session.Query("UPDATE bank.accounts SET owner = ?, cents = ?, version = ? WHERE id = ? IF version = ?",
		a.Owner, a.Cents, e.Sequence, e.AggregateID, e.Sequence-1).WithContext(ctx).MapScanCAS(map[string]any{})
	return err
}

// sweep applies events to rows that nobody reads: a process may have ended between the two.
func (s *service) sweep(ctx context.Context) {
	for {
		swept, err := s.appender.Sweep(ctx, outbox.Rows{
			AggregateType: "account",
			Version: func(ctx context.Context, last outbox.Event) (int64, error) {
				a, err := s.load(ctx, last.AggregateID)
				if errors.Is(err, gocql.ErrNotFound) {
					err = nil
				}
				return a.Version, err
			},
			Apply: s.apply,
		})
		if err != nil {
			log.Print("sweep: ", err)
		}
		time.Sleep(max(time.Minute, time.Until(swept.Next)))
	}
}

func answer(w http.ResponseWriter, a account, err error) {
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		http.Error(w, "no such account", http.StatusNotFound)
	case err != nil: // perhaps stored: see docs/protocol.md for the errors of AppendNext
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a)
	}
}
