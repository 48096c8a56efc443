package orders

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// all reads a list page by page.
func (b *fixture) all(t testing.TB, q ListQuery) []Summary {
	t.Helper()
	var out []Summary
	for pages := 0; ; pages++ {
		p, err := b.List(t.Context(), q)
		if err != nil {
			t.Fatalf("List(%+v) = %v", q, err)
		}
		if limit := max(q.Limit, 1); q.Limit > 0 && len(p.Orders) > limit || p.Next != "" && q.Limit > 0 && len(p.Orders) < limit {
			t.Errorf("a page of %d orders, want %d", len(p.Orders), limit)
		}
		out = append(out, p.Orders...)
		if q.Cursor = p.Next; q.Cursor == "" {
			return out
		}
	}
}

// Pages of every size contain each order once, newest first, within the bounds.
func TestService_List(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2010, 11, 28, 0, 0, 0, 0, time.UTC)
	var want []Order
	for i := range 60 {
		n := testNewOrder()
		// Some at the same time, in several months, one before year 1000.
		at := begin.Add(time.Duration(rnd.IntN(30)) * 37 * time.Hour)
		if i == 7 {
			at = time.Date(12, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		n.PlacedAt = &at
		switch i % 10 {
		case 8:
			other := "another customer"
			n.CustomerID = &other
		case 9:
			n.CustomerID = nil
		}
		r, err := b.Create(t.Context(), n, WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if i%10 < 8 {
			want = append(want, r.Order)
		}
	}
	slices.SortFunc(want, func(x, y Order) int { return y.PlacedAt.Compare(x.PlacedAt) })
	from, to := want[30].PlacedAt, want[10].PlacedAt
	for _, limit := range []int{0, 1, 2, 7, MaxPageSize} {
		for _, bounds := range [][2]*time.Time{{nil, nil}, {&from, nil}, {nil, &to}, {&from, &to}, {&to, &from}} {
			q := ListQuery{CustomerID: "17850", Limit: limit, Since: bounds[0], Until: bounds[1]}
			got := b.all(t, q)
			seen := map[gocql.UUID]bool{}
			for i, o := range got {
				if i > 0 && o.PlacedAt.After(got[i-1].PlacedAt) {
					t.Errorf("%+v: order %d is newer than the one before", q, i)
				}
				seen[o.ID] = true
			}
			n := 0
			for _, o := range want {
				if (q.Since == nil || !o.PlacedAt.Before(*q.Since)) && (q.Until == nil || o.PlacedAt.Before(*q.Until)) {
					n++
					if !seen[o.ID] {
						t.Errorf("%+v: order of %s is missing", q, o.PlacedAt)
					}
				}
			}
			if len(got) != n {
				t.Errorf("%+v: %d orders, want %d", q, len(got), n)
			}
		}
	}
	if got := b.all(t, ListQuery{CustomerID: "nobody"}); len(got) != 0 {
		t.Errorf("an unknown customer has %d orders", len(got))
	}
}

// The list contains a change whose writer failed before applying it once a
// reader has completed it.
func TestService_ListIsRolledForward(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	b.mustBeListed(t, &o)
	r, err := b.do(t, ChangeConfirm, o.ID, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.mustBeListed(t, &r.Order)
	b.fault(engine.OpLoggedBatch, 0, faults.Effect{Failure: faults.Unavailable(0, 1)})
	if r, err = b.do(t, ChangeShip, o.ID, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.heal(t)
	if _, err := b.Get(t.Context(), o.ID); err != nil {
		t.Fatal(err)
	}
	b.mustBeListed(t, &r.Order)
}

func TestHTTP_List(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	for range 3 {
		b.mustCreate(t)
	}
	seen := 0
	for next := "/v1/orders?customer_id=17850&limit=2&since=2010-12-01T08:26:00Z&until=2010-12-01T08:26:00.001Z"; next != ""; {
		r := world.Request(t, h, "GET", next, "")
		if r.Status != 200 {
			t.Fatalf("%s = %d %s", next, r.Status, r.Text)
		}
		list, _ := r.Body["orders"].([]any)
		seen += len(list)
		for _, e := range list {
			o, _ := e.(map[string]any)
			if l, _ := o["links"].(map[string]any); o["status"] != "placed" || l["self"] != fmt.Sprint("/v1/orders/", o["id"]) || o["lines"] != 2.0 {
				t.Errorf("listed %v", o)
			}
		}
		l, _ := r.Body["links"].(map[string]any)
		next, _ = l["next"].(string)
		if other := strings.Replace(next, "customer_id=17850", "customer_id=1", 1); other != "" {
			world.Request(t, h, "GET", other, "").MustBeProblem(t, 422, problemInvalid)
		}
	}
	if seen != 3 {
		t.Errorf("%d orders in the list, want 3", seen)
	}
	if r := world.Request(t, h, "GET", "/v1/orders?customer_id=none", ""); r.Text != "{\"orders\":[],\"links\":{}}\n" {
		t.Errorf("an empty list is %q", r.Text)
	}
	b.fault(engine.OpRead, 0, faults.Effect{Failure: faults.Unavailable(0, 1)})
	world.Request(t, h, "GET", "/v1/orders?customer_id=17850", "").MustBeProblem(t, 503, problemUnavailable)
}
