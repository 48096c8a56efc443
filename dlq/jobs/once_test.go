package jobs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
)

var (
	firstRequest = request("eve", "content")
	anyJob       = Spec{Action: dlq.ActionReplay}
)

// request is a request with one key.
func request(client, content string) requestkeys.Request {
	r, err := requestkeys.New("admin", client, "k", content)
	if err != nil {
		panic(err)
	}
	return r
}

// mustOpen requires n jobs that are not finished.
func (b *fixture) mustOpen(t testing.TB, n int) {
	t.Helper()
	if open, err := b.jobs.ListOpen(t.Context()); err != nil || len(open) != n {
		t.Fatalf("%d jobs, %v, want %d", len(open), err, n)
	}
}

// Requests with one key create one job, whatever becomes of the statements of the first.
func TestCreateOnce_LostAnswers(t *testing.T) {
	t.Parallel()
	for name, effect := range casFaults {
		for _, table := range []string{requestkeys.Table, "dead_letter_jobs"} {
			t.Run(table+", "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				s := b.another(t, patient)
				b.fault(table, engine.OpCAS, 0, 1, effect)
				first, _, err := s.CreateOnce(t.Context(), firstRequest, anyJob, eve)
				if err != nil {
					t.Fatal(err)
				}
				again, repeated, err := s.CreateOnce(t.Context(), firstRequest, anyJob, eve)
				if err != nil || !repeated || again.ID != first.ID {
					t.Errorf("again: %+v, %v, %v, want job %s", again, repeated, err, first.ID)
				}
				b.mustOpen(t, 1)
			})
		}
	}
}

// A request that dies between its key and its job is completed by the next one.
func TestCreateOnce_DiedInBetween(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fault("dead_letter_jobs", engine.OpCAS, 0, 0, faults.Effect{Failure: faults.Unavailable(0, 1)})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if j, _, err := b.jobs.CreateOnce(ctx, firstRequest, anyJob, eve); err == nil {
		t.Fatalf("created %+v without the table", j)
	}
	b.Node.Faults().Clear()
	j, _, err := b.jobs.CreateOnce(t.Context(), firstRequest, anyJob, eve)
	if err != nil {
		t.Fatal(err)
	}
	again, repeated, err := b.jobs.CreateOnce(t.Context(), firstRequest, anyJob, eve)
	if err != nil || !repeated || again.ID != j.ID {
		t.Errorf("again: %+v, %v, %v, want job %s", again, repeated, err, j.ID)
	}
	b.mustOpen(t, 1)
}

func TestCreateOnce_Concurrent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids [8]gocql.UUID
	var working sync.WaitGroup
	for i := range ids {
		working.Go(func() {
			j, _, err := b.jobs.CreateOnce(t.Context(), firstRequest, anyJob, eve)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = j.ID
		})
	}
	working.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("the requests created %v, want one job", ids)
			break
		}
	}
	b.mustOpen(t, 1)
}

// A key belongs to a client and a content.
func TestCreateOnce_OtherRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, repeated, err := b.jobs.CreateOnce(t.Context(), firstRequest, anyJob, eve)
	if err != nil || repeated {
		t.Fatal(repeated, err)
	}
	if _, _, err := b.jobs.CreateOnce(t.Context(), request("eve", "another"), anyJob, eve); !errors.Is(err, requestkeys.ErrReuse) {
		t.Errorf("another content: %v, want ErrReuse", err)
	}
	if j, repeated, err := b.jobs.CreateOnce(t.Context(), request("mallory", "content"), anyJob, eve); err != nil || repeated || j.ID == first.ID {
		t.Errorf("another client: %+v, %v, %v, want a job of its own", j, repeated, err)
	}
	b.mustOpen(t, 2)
}
