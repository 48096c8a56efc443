package receipt

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestMain(m *testing.M) {
	seeds.Rapid()
	m.Run()
}

func signer(t testing.TB, key string) *Signer {
	t.Helper()
	s, err := New([]byte(strings.Repeat(key, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var sample = Receipt{Subscription: "mail", Topic: "orders", Partition: 3, Offset: 1 << 40, Attempt: 2, Lease: 1 << 63, Epoch: 9, Instance: "host-1"}

func TestReceipt_RoundTrip(t *testing.T) {
	t.Parallel()
	s := signer(t, "k")
	rapid.Check(t, func(t *rapid.T) {
		r := Receipt{
			Subscription: rapid.StringN(0, 60, 60).Draw(t, "subscription"), Topic: rapid.StringN(0, 249, 249).Draw(t, "topic"),
			Partition: rapid.Int32Min(0).Draw(t, "partition"), Offset: rapid.Int64().Draw(t, "offset"), Attempt: int(rapid.Int32Min(0).Draw(t, "attempt")),
			Lease: rapid.Uint64().Draw(t, "lease"), Epoch: rapid.Int64Min(0).Draw(t, "epoch"), Instance: rapid.StringN(0, 255, 255).Draw(t, "instance"),
		}
		text := s.Sign(&r)
		if got, err := s.Parse(text); err != nil || got != r {
			t.Fatalf("Parse(%q) = %+v, %v; want %+v", text, got, err, r)
		}
		other := rapid.StringN(0, 255, 255).Draw(t, "other")
		if !Names(text, r.Instance) || Names(text, other) != (other == r.Instance) {
			t.Fatalf("Names(%q): %v for its instance, %v for %q", text, Names(text, r.Instance), Names(text, other), other)
		}
	})
}

// A receipt with one other character, or under another key, is invalid.
func TestReceipt_ForgeriesAreInvalid(t *testing.T) {
	t.Parallel()
	s := signer(t, "k")
	text := s.Sign(&sample)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=\n +/"
	for i := range len(text) {
		for _, c := range alphabet {
			forged := text[:i] + string(c) + text[i+1:]
			if _, err := s.Parse(forged); forged != text && !errors.Is(err, ErrInvalid) {
				t.Fatalf("character %d as %q: %v, want ErrInvalid", i, c, err)
			}
		}
		if _, err := s.Parse(text[:i]); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d characters: %v, want ErrInvalid", i, err)
		}
	}
	for _, forged := range []string{"", text + "A", text + "\n", text + "=", "\n" + text, signer(t, "l").Sign(&sample), strings.Repeat("A", 1<<20)} {
		if _, err := s.Parse(forged); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.30q: %v, want ErrInvalid", forged, err)
		}
	}
}

// Names beyond their limits make no receipt that Parse accepts.
func TestReceipt_LongNamesAreInvalid(t *testing.T) {
	t.Parallel()
	s := signer(t, "k")
	for what, change := range map[string]func(*Receipt, string){
		"subscription": func(r *Receipt, name string) { r.Subscription = name }, "topic": func(r *Receipt, name string) { r.Topic = name }, "instance": func(r *Receipt, name string) { r.Instance = name },
	} {
		r := sample
		change(&r, strings.Repeat("x", maxLength))
		text := s.Sign(&r)
		if got, err := s.Parse(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("a long %s: Parse() = %.40v, %v, want ErrInvalid", what, got, err)
		}
		if what == "instance" && Names(text, r.Instance) {
			t.Error("Names() is true for a long instance")
		}
	}
}

func TestNew_RefusesShortKey(t *testing.T) {
	t.Parallel()
	if _, err := New(make([]byte, 15)); err == nil {
		t.Error("a key of 15 bytes is accepted")
	}
}

// The name of an instance that is a part of another's, or whose length is a character of
// it, does not make a receipt that of this instance.
func TestNames_OfAnother(t *testing.T) {
	t.Parallel()
	s := signer(t, "k")
	for _, at := range []string{"", "a", "host", "host-1", "host-10", "xhost-1", "\x06host-1", strings.Repeat("-", 45), strings.Repeat("-", 47), strings.Repeat("x", 255), strings.Repeat("x", 256)} {
		for _, instance := range []string{"", "a", "host", "host-1", "host-10", strings.Repeat("-", 45), strings.Repeat("x", 255), strings.Repeat("x", 256)} {
			r := sample
			r.Instance = at
			if got, want := Names(s.Sign(&r), instance), at == instance && len(at) < 256; got != want {
				t.Errorf("the receipt of %.10q names %.10q: %v, want %v", at, instance, got, want)
			}
		}
	}
	for _, text := range []string{"", "A", "Ag", "AgA", "====", "Ag\n\n", "\n\n\n\n"} {
		if Names(text, "host") || Names(text, "") {
			t.Errorf("%q names an instance", text)
		}
	}
}

// A text that Parse accepts is exactly what Sign writes for the result.
func FuzzParse(f *testing.F) {
	s := signer(f, "k")
	f.Add(s.Sign(&sample))
	f.Add("")
	f.Add(strings.Repeat("A", 100))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := s.Parse(text)
		if err == nil && s.Sign(&r) != text {
			t.Errorf("%q is accepted, and is not the text of %+v", text, r)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	s := signer(b, "k")
	for b.Loop() {
		s.Sign(&sample)
	}
}
