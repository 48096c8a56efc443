package requestkeys

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A key belongs to an API, a client and a content; its first request decides the result.
func TestClaim(t *testing.T) {
	t.Parallel()
	w := world.Start(t)
	query := func(stmt string, args ...any) *gocql.Query {
		return w.Session.Query(stmt, args...).WithContext(t.Context()).SerialConsistency(gocql.Serial)
	}
	at := time.UnixMilli(1_700_000_000_123).UTC()
	claim := func(api, client, key string, content any, at time.Time) (fresh, first Result, same bool) {
		t.Helper()
		r, err := New(api, client, key, content)
		if err != nil {
			t.Fatal(err)
		}
		fresh = Result{gocql.TimeUUID(), at}
		if first, same, err = Claim(query, Table, r, fresh); err != nil {
			t.Fatal(err)
		}
		return fresh, first, same
	}
	content := map[string]int{"a": 1, "b": 2}
	mine, first, same := claim("messages", "eve", "k", content, at)
	if first != mine || !same {
		t.Fatalf("the first request gets %v, %t, want %v", first, same, mine)
	}
	if _, first, same = claim("messages", "eve", "k", content, at.Add(time.Hour)); first != mine || !same {
		t.Errorf("the repetition gets %v, %t, want %v", first, same, mine)
	}
	if _, first, same = claim("messages", "eve", "k", map[string]int{"a": 1}, at); first != mine || same {
		t.Errorf("another content gets %v, %t, want another request", first, same)
	}
	for _, other := range [][3]string{{"admin", "eve", "k"}, {"messages", "", "k"}, {"messages", "eve ", "k"}, {"messages", "eve", "K"}} {
		if fresh, first, same := claim(other[0], other[1], other[2], content, at); first != fresh || !same {
			t.Errorf("%q gets %v, %t, want its own result", other, first, same)
		}
	}
	if _, err := New("admin", "eve", "k", func() {}); err == nil {
		t.Error("a content that is not JSON has a hash")
	}
}
