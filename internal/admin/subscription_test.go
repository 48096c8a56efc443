package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The operators' API serves the dead letters of subscriptions like others. The history of
// an event does not search the outbox and the topics for an id that is in neither.
func TestSubscription_DeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	event := gocql.MustRandomUUID().String()
	l := testDeadLetter("", 0)
	l.Table, l.EventID, l.AggregateType, l.EventType, l.Topic = "subscription.inventory", outbox.NameID(gocql.UUID{1}, "inventory", event).UUID(), "", "", "orders"
	l.ErrorClass, l.Metadata = "max_receive", map[string]string{"event_id": event, "partition": "3", "offset": "17"}
	b.writeDeadLetter(t, l, time.Time{})
	path := "/v1/dead-letters/" + l.EventID.String()
	var got DeadLetterBody
	b.ask(t, access.Viewer, "GET", path, "").into(t, http.StatusOK, &got)
	if got.Table != l.Table || got.Position != 1 || !slices.Equal(got.May, []dlq.Action{dlq.ActionReplay, dlq.ActionUnblock, dlq.ActionSuspend, dlq.ActionResolve, dlq.ActionDiscard, dlq.ActionEdit}) {
		t.Errorf("dead letter: %+v", got)
	}
	var groups struct {
		Groups []groupBody `json:"groups"`
	}
	b.ask(t, access.Viewer, "GET", "/v1/dead-letters/groups?table=subscription.inventory", "").into(t, http.StatusOK, &groups)
	if len(groups.Groups) != 1 || groups.Groups[0].Topic != "orders" || groups.Groups[0].Count != 1 {
		t.Errorf("groups: %+v", groups)
	}
	var life BiographyBody
	b.ask(t, access.Viewer, "GET", "/v1/events/"+l.EventID.String(), "").into(t, http.StatusOK, &life)
	if len(life.Steps) != 1 || len(life.Gaps) != 1 || !life.DeadLetter ||
		life.Gaps[0] != "This is the dead letter of subscription inventory for event "+event+" in topic orders, partition 3, offset 17: see the history of that event." {
		t.Errorf("history: %+v", life)
	}
	var made JobBody
	b.ask(t, access.Operator, "POST", "/v1/jobs", `{"action":"replay","filter":{"table":"subscription.inventory"}}`).into(t, http.StatusAccepted, &made)
	if made.Filter == nil || made.Filter.Table != l.Table {
		t.Errorf("job: %+v", made)
	}
	a := b.ask(t, access.Admin, "POST", path+"/edit", `{"payload_text":"{}"}`, httpapi.ReasonHeader, "INC-1", "If-Match", `"1"`).into(t, http.StatusOK, nil)
	if strings.Contains(string(a.body), "cannot be published") {
		t.Errorf("edit: %s", a.body)
	}
	b.ask(t, access.Admin, "POST", path+"/discard", "", httpapi.ReasonHeader, "INC-2").into(t, http.StatusOK, nil)
	if now, err := b.store.Read(t.Context(), l.EventID); err != nil || now.Status != dlq.Resolved {
		t.Errorf("after a discard: %s, %v", now.Status, err)
	}
}
