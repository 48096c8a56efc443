// Command protocol runs the Python form of docs/protocol.md beside the Go form, on the same
// aggregates of a database, and checks that each change is one event and one step of the balance.
//
//	go run ./test/protocol -cql 127.0.0.1:9042 -python .peers/schemathesis/bin/python
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const aggregates, writers, changes = 3, 3, 5

func main() {
	cql := flag.String("cql", "127.0.0.1:9042", "address of the database")
	python := flag.String("python", "python3", "a Python with scylla-driver")
	flag.Parse()
	if err := run(context.Background(), *cql, *python); err != nil {
		fmt.Fprintln(os.Stderr, "protocol:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cql, python string) error {
	host, port, err := net.SplitHostPort(cql)
	if err != nil {
		return fmt.Errorf("-cql: %w", err)
	}
	c := gocql.NewCluster(host)
	c.Port, err = strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("-cql: %w", err)
	}
	c.Keyspace, c.Consistency = "outbox", gocql.LocalQuorum
	s, err := c.CreateSession()
	if err != nil {
		return fmt.Errorf("connect to %s: %w", cql, err)
	}
	defer s.Close()
	if err := s.Query("CREATE TABLE IF NOT EXISTS accounts (id text PRIMARY KEY, balance bigint, version bigint)").Exec(); err != nil {
		return fmt.Errorf("create table accounts: %w", err)
	}
	a, err := outbox.NewAppender(ctx, s, outbox.DefaultTable, outbox.AppenderConfig{})
	if err != nil {
		return err
	}
	args := []string{"test/protocol/writer.py", host, port, strconv.Itoa(writers), strconv.Itoa(changes)}
	ids := make([]gocql.UUID, aggregates)
	for i := range ids {
		ids[i] = outbox.NewID().UUID()
		args = append(args, ids[i].String())
	}
	var work errgroup.Group
	work.Go(func() error {
		out, err := exec.CommandContext(ctx, python, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("writer.py: %w\n%s", err, out)
		}
		return nil
	})
	for range writers {
		work.Go(func() error {
			for range changes {
				for _, id := range ids {
					if err := change(ctx, s, a, id); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	for _, id := range ids {
		if err := check(ctx, s, a, id); err != nil {
			return err
		}
	}
	fmt.Printf("%d aggregates, %d Python and %d Go writers, %d changes each: 0 lost, 0 twice, 0 gaps\n", aggregates, writers, writers, changes)
	return nil
}

// check reads the events of an aggregate, and applies them to its row.
func check(ctx context.Context, s *gocql.Session, a *outbox.Appender, id gocql.UUID) error {
	events, err := a.Since(ctx, &outbox.Event{AggregateID: outbox.IDFromUUID(id)}, 1)
	if err != nil {
		return err
	}
	distinct := make(map[gocql.UUID]bool)
	for i := range events {
		distinct[events[i].ID.UUID()] = true
		if events[i].Sequence != int64(i+1) {
			return fmt.Errorf("aggregate %s: the event after %d has the number %d", id, i, events[i].Sequence)
		}
		if err := apply(ctx, s, &events[i]); err != nil {
			return err
		}
	}
	balance, _, err := load(ctx, s, id)
	if err == nil {
		err = checkLog(ctx, s, id)
	}
	if all := 2 * writers * changes; err == nil && (len(events) != all || len(distinct) != all || balance != int64(all)) {
		err = fmt.Errorf("aggregate %s: %d events with %d ids, balance %d; want %d of each", id, len(events), len(distinct), balance, all)
	}
	return err
}

// checkLog reads the log rows of an aggregate: each of them may be the one that the relay reads, so
// each has the whole event, also one that a writer of the other language has settled.
func checkLog(ctx context.Context, s *gocql.Session, id gocql.UUID) error {
	var aggregate string
	var n int64
	var headers map[string]string
	rows, partial := 0, 0
	iter := s.Query("SELECT aggregate_id, seq, headers FROM outbox_messages_scylla_cdc_log").WithContext(ctx).Iter()
	for iter.Scan(&aggregate, &n, &headers) {
		if aggregate == id.String() {
			rows++
			if headers["writer"] == "" {
				partial++
			}
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read the CDC log: %w", err)
	}
	if rows == 0 || partial > 0 {
		return fmt.Errorf("aggregate %s: %d of %d log rows have no headers", id, partial, rows)
	}
	return nil
}

// change adds 1 to the balance of an account, as docs/protocol.md has it.
func change(ctx context.Context, s *gocql.Session, a *outbox.Appender, id gocql.UUID) error {
	eventID, first := outbox.NewID().UUID(), int64(0)
	for {
		balance, version, err := load(ctx, s, id)
		if err != nil {
			return err
		}
		if first == 0 {
			first = version + 1
		}
		r, err := a.AppendNext(ctx, outbox.Event{
			ID: outbox.IDFromUUID(eventID), AggregateID: outbox.IDFromUUID(id), Sequence: version + 1, AggregateType: "account", Type: "BalanceChanged",
			Payload: fmt.Appendf(nil, `{"balance": %d}`, balance+1), Headers: map[string]string{"writer": "go"}, CreatedAt: time.Now(),
		}, outbox.AppendOptions{SearchFrom: first})
		if err == nil {
			return apply(ctx, s, &r.Event)
		}
		conflict, ok := errors.AsType[*outbox.ConflictError](err)
		if _, unknown := errors.AsType[*outbox.UnknownOutcomeError](err); !ok && !unknown {
			return err
		}
		if ok {
			for i := range conflict.Events {
				if err := apply(ctx, s, &conflict.Events[i]); err != nil {
					return err
				}
			}
		}
	}
}

func load(ctx context.Context, s *gocql.Session, id gocql.UUID) (balance, version int64, err error) {
	err = s.Query("SELECT balance, version FROM accounts WHERE id = ?", id.String()).WithContext(ctx).Scan(&balance, &version)
	if errors.Is(err, gocql.ErrNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		err = fmt.Errorf("read account %s: %w", id, err)
	}
	return balance, version, err
}

func apply(ctx context.Context, s *gocql.Session, e *outbox.Event) error {
	var state struct {
		Balance int64 `json:"balance"`
	}
	err := json.Unmarshal(e.Payload, &state)
	if err == nil {
		err = s.Query("INSERT INTO accounts (id, balance, version) VALUES (?, ?, ?) USING TIMESTAMP ?", e.AggregateID, state.Balance, e.Sequence, e.Sequence).WithContext(ctx).Exec()
	}
	if err != nil {
		return fmt.Errorf("apply event %d of account %s: %w", e.Sequence, e.AggregateID, err)
	}
	return nil
}
