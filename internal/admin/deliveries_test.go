package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// deliver saves the delivery of an event by the rule big.
func (b *bundle) deliver(t *testing.T, event string, st delivery.State) *delivery.Delivery {
	t.Helper()
	r := &kgo.Record{Topic: "OrderCreated", Timestamp: time.UnixMilli(1_700_000_000_456), Value: []byte(`{"n":1}`), Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(event)}, {Key: "ce_type", Value: []byte("OrderCreated")}}}
	e := kafkarecord.Decode(r)
	d := delivery.New("big", "hook", r, &e)
	if d.State = st; st == delivery.Failed {
		d.Attempts, d.Error = 8, "the receiver answered 500"
	}
	if err := b.cfg.Deliveries.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDeliveries_AreListedShownAndRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	failed := b.deliver(t, "e-failed", delivery.Failed)
	b.deliver(t, "e-pending", delivery.Pending)
	for i := range 7 {
		b.deliver(t, fmt.Sprint("e-", i), delivery.Delivered)
	}
	type list struct {
		Deliveries []delivery.View
		Next       string
	}
	ids := make(map[string]bool)
	for query, n := "", 0; ; n++ {
		var l list
		b.ask(t, access.Viewer, "GET", "/v1/deliveries?limit=4"+query, "").into(t, 200, &l)
		for _, d := range l.Deliveries {
			if ids[d.ID] || d.Event != nil {
				t.Errorf("listed twice, or with its event: %+v", d)
			}
			ids[d.ID] = true
		}
		if query = "&cursor=" + l.Next; l.Next == "" {
			break
		}
		if n == 10 {
			t.Fatal("the pages do not end")
		}
	}
	if len(ids) != 9 {
		t.Errorf("%d deliveries on the pages, want 9", len(ids))
	}
	for query, want := range map[string]int{"state=failed": 1, "rule=big": 9, "rule=small": 0, "event_id=e-3": 1, "state=delivered&rule=big": 7} {
		var l list
		if b.ask(t, access.Viewer, "GET", "/v1/deliveries?"+query, "").into(t, 200, &l); len(l.Deliveries) != want {
			t.Errorf("%s: %d deliveries, want %d", query, len(l.Deliveries), want)
		}
	}
	b.ask(t, access.Viewer, "GET", "/v1/deliveries?cursor=x", "").problemIn(t, 422)
	b.ask(t, access.Viewer, "GET", "/v1/deliveries?state=lost", "").problemIn(t, 422)

	path := "/v1/deliveries/" + failed.ID.String()
	var one delivery.View
	b.ask(t, access.Viewer, "GET", path, "").into(t, 200, &one)
	if one.State != delivery.Failed || one.Attempts != 8 || one.Event == nil || string(one.Event.Data) != `{"n":1}` {
		t.Errorf("the delivery is %+v", one)
	}
	b.ask(t, access.Viewer, "GET", "/v1/deliveries/01a2005c-395d-72e3-8401-994110828553", "").problemIn(t, 404)

	var answer struct {
		DryRun   bool `json:"dry_run"`
		Delivery delivery.View
	}
	b.ask(t, access.Operator, "POST", path+"/repeat", `{"dry_run":true}`).into(t, 200, &answer)
	if !answer.DryRun || answer.Delivery.State != delivery.Failed {
		t.Errorf("a dry run: %+v", answer)
	}
	b.ask(t, access.Viewer, "POST", path+"/repeat", `{}`).problemIn(t, 403)
	b.ask(t, access.Operator, "POST", path+"/repeat", `{"reason":"mended"}`).into(t, 200, &answer)
	if answer.DryRun || answer.Delivery.State != delivery.Pending || answer.Delivery.RepeatedBy != "a-operator" || answer.Delivery.Reason != "mended" {
		t.Errorf("repeated: %+v", answer)
	}
	b.ask(t, access.Operator, "POST", path+"/repeat", `{}`).problemIn(t, 409)
	if asked, err := b.cfg.Deliveries.Repeats(t.Context(), "big", gocql.UUID{}, 10); err != nil || len(asked) != 1 || asked[0].ID != failed.ID {
		t.Errorf("to be repeated: %+v, %v", asked, err)
	}
	// It is recorded in the audit trail; refused requests and the dry run are not.
	var lines struct{ Lines []auditLine }
	b.ask(t, access.Viewer, "GET", "/v1/dlq/audit", "").into(t, 200, &lines)
	if len(lines.Lines) != 1 || lines.Lines[0].Action != "repeat-delivery" || lines.Lines[0].State != auditDone || lines.Lines[0].Target != failed.ID.String() || lines.Lines[0].Reason != "mended" {
		t.Errorf("the audit has %+v", lines.Lines)
	}
}
