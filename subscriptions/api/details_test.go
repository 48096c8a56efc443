package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	service "github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Details are common to receipts or an item's own, as the Go client writes them, and bounded at
// the boundary of a character; an acknowledgement has none.
func TestDecodeSettle_Details(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", service.MaxDetails-1) + "ä"
	item, err := json.Marshal(subscriptions.Settling{Receipt: "b", Reason: "boom", Details: "at main.go:7"})
	if err != nil {
		t.Fatal(err)
	}
	common, err := json.Marshal(map[string]any{"receipts": []string{"a"}, "details": long})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]service.Settle{
		string(common): {Receipt: "a", Details: long[:service.MaxDetails-1]},
		`{"details":"of all","items":[` + string(item) + `]}`:      {Receipt: "b", Reason: "boom", Details: "at main.go:7"},
		`{"details":"of all","items":[{"receipt":"c"}]}`:           {Receipt: "c", Details: "of all"},
		`{"items":[{"receipt":"d","reason":"r","details":"own"}]}`: {Receipt: "d", Reason: "r", Details: "own"},
	} {
		for _, action := range []service.Action{service.ActionNack, service.ActionReject} {
			want.Action = action
			if got, err := decodeSettle(action, []byte(body)); err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%s of %.60s = %+v, %v", action, body, got, err)
			}
		}
	}
	if _, err := decodeSettle(service.ActionAck, []byte(`{"receipts":["a"],"details":"d"}`)); err == nil || !strings.Contains(err.Error(), "details") {
		t.Errorf("an acknowledgement with details = %v", err)
	}
}
