package lease

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// row is a row of a table of leases; it executes the package's statements. Hold does so
// from a goroutine of its own.
type row struct {
	mu    sync.Mutex // guards the fields below
	owner string
	until time.Time
	err   error
	// silent makes statements wait for the end of their context.
	silent bool
}

func (r *row) apply(ctx context.Context, stmt string, args ...any) (bool, error) {
	r.mu.Lock()
	if r.silent && ctx.Done() != nil {
		r.mu.Unlock()
		<-ctx.Done()
		return false, ctx.Err()
	}
	defer r.mu.Unlock()
	if r.err != nil {
		return false, r.err
	}
	if !time.Now().Before(r.until) {
		r.owner = ""
	}
	switch {
	case strings.Contains(stmt, "SET owner = null"):
		if r.owner != args[1] {
			return false, nil
		}
		r.owner = ""
	case strings.HasSuffix(stmt, "IF owner = null") && r.owner != "", strings.HasSuffix(stmt, "IF owner = ?") && r.owner != args[3]:
		return false, nil
	default:
		r.owner, r.until = args[1].(string), time.Now().Add(time.Duration(args[0].(int))*time.Second)
	}
	return true, nil
}

func (r *row) lease(owner string) *Lease {
	return &Lease{Table: "t", Name: "n", Owner: owner, TTL: 20 * time.Second, Apply: r.apply}
}

func TestLease_OneOwnerAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &row{}
		one, two := r.lease("one"), r.lease("two")
		take := func(l *Lease, want bool) {
			t.Helper()
			if mine, err := l.Take(t.Context()); mine != want || err != nil {
				t.Fatalf("Take() of %s = %v, %v, want %v", l.Owner, mine, err, want)
			}
		}
		take(one, true)
		take(two, false)
		time.Sleep(15 * time.Second)
		take(one, true) // renewed
		time.Sleep(15 * time.Second)
		take(two, false)
		time.Sleep(5 * time.Second)
		take(two, true) // expired
		if err := one.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(one, false) // it had nothing to leave
		if err := two.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(one, true)
		r.err = errors.New("no answer")
		if _, err := one.Take(t.Context()); !errors.Is(err, r.err) {
			t.Errorf("Take() error = %v", err)
		}
		if err := one.Leave(t.Context()); !errors.Is(err, r.err) {
			t.Errorf("Leave() error = %v", err)
		}
	})
}

// Hold renews the lease while f runs, and ends f before another process can have it:
// when the row names another, or when no renewal succeeded for most of its TTL.
func TestHold_EndsWithTheLease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*row)
		within time.Duration
	}{
		"taken over": {func(r *row) { r.owner, r.until = "two", time.Now().Add(time.Hour) }, 5 * time.Second},
		"error":      {func(r *row) { r.err = errors.New("no answer") }, 20 * time.Second},
		"no answer":  {func(r *row) { r.silent = true }, 19 * time.Second}, // the server ends a lease up to a second early
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &row{}
				err := r.lease("one").Hold(t.Context(), func(ctx context.Context) error {
					time.Sleep(time.Minute + time.Second)
					r.mu.Lock()
					owner := r.owner
					tt.change(r)
					r.mu.Unlock()
					if ctx.Err() != nil || owner != "one" {
						t.Errorf("after a minute: %v, owner %q", ctx.Err(), owner)
					}
					changed := time.Now()
					<-ctx.Done()
					if took := time.Since(changed); took > tt.within {
						t.Errorf("f ends after %s, want at most %s", took, tt.within)
					}
					return ctx.Err()
				})
				if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "lease n") {
					t.Errorf("Hold() = %v, want why", err)
				}
			})
		})
	}
}

func TestHold_DoesNothingWithoutTheLease(t *testing.T) {
	t.Parallel()
	r := &row{owner: "two", until: time.Now().Add(time.Hour)}
	if err := r.lease("one").Hold(t.Context(), func(context.Context) error { return errors.New("called") }); err != nil {
		t.Errorf("Hold() = %v, want nil", err)
	}
	r.owner = ""
	if err := r.lease("one").Hold(t.Context(), func(context.Context) error { return nil }); err != nil || r.owner != "" {
		t.Errorf("Hold() = %v, owner %q, want the lease given back", err, r.owner)
	}
}
