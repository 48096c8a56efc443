// Command service keeps accounts and publishes each change as an event: README.md has the commands.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

//go:embed schema.cql
var schema string

// account is a row of bank.accounts and the payload of its events; Version is the number of the last one.
type account struct{ Cents, Version int64 }

type service struct {
	session  *gocql.Session
	appender *outbox.Appender
}

func main() {
	scylla, addr := flag.String("scylla", "127.0.0.1:9042", "address of ScyllaDB"), flag.String("addr", "127.0.0.1:8085", "address of this service")
	flag.Parse()
	ctx, cluster := context.Background(), gocql.NewCluster(*scylla)
	cluster.Consistency, cluster.Timeout = gocql.LocalQuorum, 10*time.Second
	session, err := cluster.CreateSession()
	for statement := range strings.SplitSeq(strings.TrimSpace(schema), ";\n") {
		if err == nil {
			err = session.Query(statement).Exec()
		}
	}
	table, invalid := outbox.NewTable("bank", "account_events")
	if err = errors.Join(err, invalid); err != nil {
		log.Fatal(err)
	}
	s := service{session: session}
	if s.appender, err = outbox.NewAppender(ctx, session, table, outbox.AppenderConfig{}); err != nil {
		log.Fatal(err)
	}
	go s.sweep(ctx)
	http.HandleFunc("POST /accounts/{id}/deposits", s.deposit)
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, nil))
}

// deposit answers with the account as the event of the deposit has it.
func (s service) deposit(w http.ResponseWriter, r *http.Request) {
	var in account
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Cents <= 0 {
		http.Error(w, `send {"Cents":1250}`, http.StatusBadRequest)
	} else if e, err := s.change(r.Context(), r.PathValue("id"), in); err != nil { // it may be stored: see docs/protocol.md
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	} else {
		_, _ = w.Write(e.Payload)
	}
}

// change stores the next event of an account, and then its row; the first one opens the account.
func (s service) change(ctx context.Context, id string, in account) (outbox.Event, error) {
	e := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.IDFromText(id), AggregateType: "account", Type: "MoneyDeposited", CreatedAt: time.Now()}
	for {
		a, err := s.load(ctx, id)
		if err != nil {
			return e, err
		}
		a.Cents, a.Version, e.Sequence = a.Cents+in.Cents, a.Version+1, a.Version+1
		e.Payload, _ = json.Marshal(a) // of texts and numbers, which never fails
		appended, err := s.appender.AppendNext(ctx, e, outbox.AppendOptions{})
		var conflict *outbox.ConflictError
		if err == nil {
			return appended.Event, s.apply(ctx, appended.Event)
		} else if !errors.As(err, &conflict) {
			return e, err
		}
		for _, other := range conflict.Events { // by other processes: apply them to the row, and compute this one again
			if err := s.apply(ctx, other); err != nil {
				return e, err
			}
		}
	}
}

// load reads the row of an account, whose version is 0 before its first event.
func (s service) load(ctx context.Context, id string) (a account, err error) {
	rows := s.session.Query("SELECT cents, version FROM bank.accounts WHERE id = ?", id).WithContext(ctx).Iter()
	rows.Scan(&a.Cents, &a.Version)
	return a, rows.Close()
}

// apply writes the row of an account at the version of an event. That of a later version has a later timestamp.
func (s service) apply(ctx context.Context, e outbox.Event) error {
	var a account
	if err := json.Unmarshal(e.Payload, &a); err != nil {
		return err
	}
	return s.session.Query("INSERT INTO bank.accounts (id, cents, version) VALUES (?, ?, ?) USING TIMESTAMP ?",
		e.AggregateID.String(), a.Cents, a.Version, a.Version).WithContext(ctx).Exec()
}

// sweep applies events to rows that nobody reads: a process may have ended between the two.
func (s service) sweep(ctx context.Context) {
	rows := outbox.Rows{AggregateType: "account", Apply: s.apply, Version: func(ctx context.Context, last outbox.Event) (int64, error) {
		a, err := s.load(ctx, last.AggregateID.String())
		return a.Version, err
	}}
	for range time.Tick(time.Minute) {
		if _, err := s.appender.Sweep(ctx, rows); err != nil {
			log.Print("sweep: ", err)
		}
	}
}
