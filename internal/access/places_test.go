package access

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// One holder has at most half of the places; the others get theirs, and only the total
// bounds callers without a name.
func TestPlaces_OneHolderHasHalf(t *testing.T) {
	t.Parallel()
	p := NewPlaces(6)
	var given []func()
	take := func(holder string, want bool) {
		t.Helper()
		give, ok := p.Take(holder)
		if ok != want {
			t.Fatalf("Take(%q) with %d places taken = %t, want %t", holder, p.Taken(), ok, want)
		}
		if ok {
			given = append(given, give)
		}
	}
	for range 3 {
		take("ann", true)
	}
	take("ann", false)
	take("bob", true)
	take("", true)
	take("", true)
	take("bob", false) // all are taken
	given[0]()
	given[0]() // once more has no effect
	take("ann", true)
	take("bob", false)
	for _, give := range given {
		give()
	}
	if p.Taken() != 0 || len(p.mu.by) != 0 {
		t.Errorf("%d places are taken and %d holders known after all were given back", p.Taken(), len(p.mu.by))
	}
	one := NewPlaces(1)
	if _, ok := one.Take("ann"); !ok {
		t.Error("the only place is not to be had")
	}
}

// A holder that waits for its own places does not block later waiters.
func TestPlaces_WaitersPassWhoHasTheirShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(4)
		got := make(chan string, 10)
		wait := func(ctx context.Context, holder string) {
			go func() {
				if _, err := p.Wait(ctx, holder); err == nil {
					got <- holder
				}
			}()
			synctest.Wait()
		}
		first, err := p.Wait(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		wait(t.Context(), "ann")
		wait(gone, "ann")
		wait(t.Context(), "ann")
		for range 2 {
			wait(t.Context(), "bob")
		}
		if len(got) != 3 || p.Taken() != 4 {
			t.Errorf("%d waiters got a place and %d are taken, want one of ann, two of bob and 4", len(got), p.Taken())
		}
		leave()
		synctest.Wait()
		for len(got) > 0 {
			<-got
		}
		first()
		synctest.Wait()
		if len(got) != 1 || <-got != "ann" || p.Taken() != 4 {
			t.Errorf("the place that was given back went to nobody who waits; %d are taken", p.Taken())
		}
		if _, err := p.Wait(gone, "carl"); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait() of one who has gone = %v", err)
		}
	})
}

func TestHolder(t *testing.T) {
	t.Parallel()
	ann := With(t.Context(), Principal{Name: "ann"})
	for _, tt := range []struct {
		ctx          context.Context
		remote, want string
	}{
		{ann, "10.0.0.1:80", "ann"},
		{t.Context(), "10.0.0.1:80", "address 10.0.0.1"},
		{t.Context(), "10.0.0.1", "address 10.0.0.1"},
		{t.Context(), "[2001:db8::7]:80", "address 2001:db8::/64"},
		{t.Context(), "127.0.0.1:80", ""},
		{t.Context(), "", ""},
	} {
		if got := Holder(tt.ctx, tt.remote); got != tt.want {
			t.Errorf("Holder(%q) = %q, want %q", tt.remote, got, tt.want)
		}
	}
}
