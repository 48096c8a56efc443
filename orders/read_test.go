package orders

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A preview matches the result of the change, in every status, and stores
// nothing.
func TestPreview_IsWhatTheChangeDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	for _, c := range Changes {
		for _, from := range Statuses {
			t.Run(fmt.Sprintf("%s of %s", c, from), func(t *testing.T) {
				t.Parallel()
				o := b.mustCreate(t)
				for _, step := range way[from] {
					r, err := b.do(t, step, o.ID, WriteOptions{})
					if err != nil {
						t.Fatal(err)
					}
					o = r.Order
				}
				before := b.mustGet(t, o.ID)
				said := world.Request(t, h, "GET", "/v1/orders/"+o.ID.String()+"/preview?change="+string(c), "")
				if said.Status != 200 || said.Header.Get("ETag") != etag(o.Version) || said.Body["status"] != string(from) || said.Body["version"] != float64(o.Version) {
					t.Fatalf("preview = %d %v %s", said.Status, said.Header, said.Text)
				}
				if after := b.mustGet(t, o.ID); after.Version != before.Version || after.EventID != before.EventID {
					t.Errorf("the preview made version %d of %d", after.Version, before.Version)
				}
				r, err := b.do(t, c, o.ID, WriteOptions{IfVersion: []int64{o.Version}})
				var conflict *ConflictError
				switch {
				case errors.As(err, &conflict):
					if said.Body["allowed"] != false || said.Body["refusal"] != conflict.Reason() || said.Body["version_after"] != float64(o.Version) || said.Body["event_type"] != nil {
						t.Errorf("it was refused (%v), the preview is %s", err, said.Text)
					}
				case err != nil:
					t.Fatal(err)
				default:
					events, err := b.Events(t.Context(), o.ID, 0, 1)
					if err != nil {
						t.Fatal(err)
					}
					if said.Body["allowed"] != true || said.Body["status_after"] != string(r.Order.Status) || said.Body["version_after"] != float64(r.Order.Version) ||
						said.Body["event_type"] != events[0].Type {
						t.Errorf("it is %s at version %d by %s, the preview is %s", r.Order.Status, r.Order.Version, events[0].Type, said.Text)
					}
				}
			})
		}
	}
}

// Pages of every size contain each event once, newest first.
func TestEvents_InPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	o := b.mustCreate(t)
	other := b.mustCreate(t)
	want := []string{"1 OrderCreated placed"}
	for i, c := range []Change{ChangeUpdate, ChangeConfirm, ChangeUpdate, ChangeCancel} {
		r, err := b.do(t, c, o.ID, WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%d %s %s", i+2, c.eventType(), r.Order.Status))
	}
	slices.Reverse(want)
	last := b.mustGet(t, o.ID)
	for limit := 1; limit <= 6; limit++ {
		var got []string
		for path, pages := fmt.Sprintf("/v1/orders/%s/events?limit=%d", o.ID, limit), 0; path != ""; pages++ {
			r := world.Request(t, h, "GET", path, "")
			events, _ := r.Body["events"].([]any)
			if r.Status != 200 || len(events) > limit || pages > 6 {
				t.Fatalf("%s = %d %s", path, r.Status, r.Text)
			}
			for _, e := range events {
				m := e.(map[string]any)
				if len(got) == 0 && m["event_id"] != last.EventID.String() {
					t.Errorf("the last event is %v, want %s", m["event_id"], last.EventID)
				}
				got = append(got, fmt.Sprintf("%v %v %v", m["version"], m["type"], m["status"]))
			}
			path = ""
			if next, ok := r.Body["next"].(string); ok {
				path = fmt.Sprintf("/v1/orders/%s/events?limit=%d&cursor=%s", o.ID, limit, next)
				world.Request(t, h, "GET", fmt.Sprintf("/v1/orders/%s/events?cursor=%s", other.ID, next), "").MustBeProblem(t, 422, problemInvalid)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q, want %q", limit, got, want)
		}
	}
	if r := world.Request(t, h, "GET", "/v1/orders/"+other.ID.String()+"/events", ""); len(r.Body["events"].([]any)) != 1 {
		t.Errorf("another order's events: %s", r.Text)
	}
	// An order whose events have all expired is still an order.
	if err := b.Session.Query("DELETE FROM outbox_messages WHERE aggregate_id = ?", other.ID.String()).Exec(); err != nil {
		t.Fatal(err)
	}
	if r := world.Request(t, h, "GET", "/v1/orders/"+other.ID.String()+"/events", ""); r.Status != 200 || fmt.Sprint(r.Body["events"]) != "[]" {
		t.Errorf("without events: %d %s", r.Status, r.Text)
	}
	for _, path := range []string{"/events", "/preview?change=cancel"} {
		world.Request(t, h, "GET", "/v1/orders/"+exampleID+path, "").MustBeProblem(t, 404, problemNotFound)
	}
	world.Request(t, h, "GET", "/v1/orders/"+o.ID.String()+"/preview?change=delete", "").MustBeProblem(t, 422, problemInvalid)
}

// On another server's API each operation declares its role, and operations with
// the content of orders are missing.
func TestRegister_OnAnotherAPI(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mux := http.NewServeMux()
	other := humago.New(mux, huma.DefaultConfig("Other", "1"))
	b.Register(other)
	roles := map[string]any{}
	for _, path := range other.OpenAPI().Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Patch, path.Delete} {
			if op != nil {
				roles[op.OperationID] = op.Extensions["x-role"]
			}
		}
	}
	want := map[string]any{
		"list-orders": access.Viewer, "get-order": access.Viewer, "list-order-events": access.Viewer, "preview-order-change": access.Viewer,
		"confirm-order": access.Operator, "ship-order": access.Operator, "cancel-order": access.Operator,
	}
	if fmt.Sprint(roles) != fmt.Sprint(want) {
		t.Errorf("operations and roles are %v, want %v", roles, want)
	}
	o := b.mustCreate(t)
	if r := world.Request(t, mux, "POST", "/v1/orders/"+o.ID.String()+"/confirm", "", "If-Match", `"1"`); r.Status != 200 || r.Body["status"] != "confirmed" {
		t.Errorf("confirm = %d %s", r.Status, r.Text)
	}
	world.Request(t, mux, "POST", "/v1/orders/"+o.ID.String()+"/confirm", "", "If-Match", `"1"`).MustBeProblem(t, 412, problemStale)
	world.Request(t, mux, "POST", "/v1/orders/"+o.ID.String()+"/confirm", "").MustBeProblem(t, 409, problemConfirmed)
}

func (b *fixture) mustGet(t *testing.T, id gocql.UUID) Order {
	t.Helper()
	o, err := b.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
