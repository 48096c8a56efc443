package admin

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// reports writes the heartbeat of a rule in a process, with the store's clock minus age.
func (b *bundle) reports(t *testing.T, rule, instance, state string, age time.Duration) {
	t.Helper()
	s, err := delivery.Open(delivery.Config{Session: b.session, Keyspace: b.cfg.Keyspace, Now: func() time.Time { return b.cfg.Now().Add(-age) }})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Report(t.Context(), []delivery.Report{{
		Rule: rule, Instance: instance,
		Definition: delivery.Definition{Plugin: "hook-" + instance, Kind: "target", Topics: []string{"orders"}, Order: "aggregate", Attempts: 8, TimeoutSeconds: 10, Concurrency: 4, Queue: 1000},
		Progress:   delivery.Progress{State: state, StartedAt: b.cfg.Now().Add(-time.Hour), Waiting: 3, Failed: 2},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestReactions_RulesAsTheyRun(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := setup(t, func(c *Config) { c.Now = func() time.Time { return now } })
	var got struct{ Rules []reactionBody }
	b.ask(t, access.Viewer, "GET", "/v1/reactions", "").into(t, 200, &got)
	if got.Rules == nil || len(got.Rules) > 0 {
		t.Errorf("nobody said anything: %+v", got.Rules)
	}
	b.reports(t, "big", "one", delivery.Running, time.Minute) // it died
	b.reports(t, "big", "two", delivery.Running, time.Second)
	b.reports(t, "lost", "one", delivery.Running, time.Minute)
	b.reports(t, "lost", "two", delivery.Stopped, time.Second)
	b.reports(t, "over", "two", delivery.Stopped, time.Hour)
	b.ask(t, access.Viewer, "GET", "/v1/reactions", "").into(t, 200, &got)
	var says []string
	for _, r := range got.Rules {
		for _, i := range r.Instances {
			says = append(says, fmt.Sprint(r.Rule, " ", r.State, " to ", r.Plugin, ": ", i.Instance, " ", i.State, " ", i.Silent, " ", i.Waiting))
		}
	}
	want := []string{
		"big running to hook-two: one running true 3", "big running to hook-two: two running false 3",
		"lost silent to hook-two: one running true 3", "lost silent to hook-two: two stopped false 3", "over stopped to hook-two: two stopped false 3",
	}
	if fmt.Sprint(says) != fmt.Sprint(want) {
		t.Errorf("the rules are\n%s\nwant\n%s", strings.Join(says, "\n"), strings.Join(want, "\n"))
	}
}

type repeatAnswer struct {
	DryRun  bool `json:"dry_run"`
	Preview RepeatPreview
	Result  *delivery.Asking
}

func TestDeliveries_RepeatMany(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	one, two, under := b.deliver(t, "e-1", delivery.Failed), b.deliver(t, "e-2", delivery.Failed), b.deliver(t, "e-3", delivery.Pending)
	b.deliver(t, "e-4", delivery.Delivered)
	const path = "/v1/reactions/repeat"
	ids := fmt.Sprintf(`"ids":[%q,%q,%q,%q,"01a2005c-395d-72e3-8401-994110828553"]`, one.ID, two.ID, one.ID, under.ID)
	var got repeatAnswer
	b.ask(t, access.Operator, "POST", path, `{"dry_run":true,`+ids+`}`).into(t, 200, &got)
	p := &got.Preview
	if !got.DryRun || got.Result != nil || p.Deliveries != 2 || p.Pending != 1 || p.Missing != 1 || p.ByRule["big"] != 2 || p.ByPlugin["hook"] != 2 || p.ByState["failed"] != 2 || p.ByError["the receiver answered 500"] != 2 {
		t.Errorf("a dry run: %+v", got)
	}
	if p.Oldest == nil || !p.Oldest.Equal(one.CreatedAt) || fmt.Sprint(p.NotRunning) != "[big]" {
		t.Errorf("the oldest is of %v, and not running are %v", p.Oldest, p.NotRunning)
	}
	b.reports(t, "big", "one", delivery.Running, 0)
	b.ask(t, access.Viewer, "POST", path, `{`+ids+`}`).problemIn(t, 403)
	for body, field := range map[string]string{
		`{}`: "body", `{` + ids + `,"filter":{}}`: "body", `{"ids":["x"]}`: "body.ids[0]", `{"ids":[]}`: "body.ids", `{"filter":{"state":"pending"}}`: "body.filter.state",
		`{"filter":{},"cursor":"x"}`: "body.cursor", `{` + ids + `,"cursor":"e30"}`: "body.cursor",
		`{"filter":{"since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}}`: "body.filter.since",
	} {
		if p := b.ask(t, access.Operator, "POST", path, body).problemIn(t, 422); len(p.Errors) != 1 || p.Errors[0].Location != field {
			t.Errorf("%s: %+v, want %s named", body, p.Errors, field)
		}
	}
	got = repeatAnswer{}
	b.ask(t, access.Operator, "POST", path, `{"reason":"mended","filter":{"plugin":"hook","rule":"big"}}`).into(t, 200, &got)
	if got.DryRun || got.Result == nil || *got.Result != (delivery.Asking{Asked: 2}) || got.Preview.NotRunning != nil || got.Preview.Next != "" {
		t.Errorf("repeated: %+v %+v", got, got.Result)
	}
	if asked, err := b.cfg.Deliveries.Repeats(t.Context(), "big", gocql.UUID{}, 10); err != nil || len(asked) != 2 {
		t.Errorf("to be repeated: %+v, %v", asked, err)
	}
	if d, err := b.cfg.Deliveries.Read(t.Context(), two.ID); err != nil || d.State != delivery.Pending || d.RepeatedBy != "a-operator" || d.Reason != "mended" {
		t.Errorf("the delivery is %+v, %v", d, err)
	}
	b.ask(t, access.Operator, "POST", path, `{`+ids+`}`).into(t, 200, &got)
	if got.Preview.Deliveries != 0 || got.Preview.Pending != 3 || got.Result.Asked != 0 {
		t.Errorf("again: %+v %+v", got, got.Result)
	}
	// The change is recorded in the audit trail; a dry run and refused requests are not.
	var lines struct{ Lines []auditLine }
	b.ask(t, access.Viewer, "GET", "/v1/dlq/audit", "").into(t, 200, &lines)
	if len(lines.Lines) != 2 {
		t.Fatalf("%d lines in the audit", len(lines.Lines))
	}
	l := lines.Lines[1]
	if l.Action != "repeat-deliveries" || l.State != auditDone || l.Reason != "mended" || l.Detail != `{"filter":{"rule":"big","plugin":"hook"},"deliveries":2}` {
		t.Errorf("the audit has %+v", l)
	}
}

// If a filter matches more than the limit of a request, the cursor visits each delivery
// once, also rules that match again immediately.
func TestDeliveries_RepeatManyByPages(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var newest *delivery.Delivery
	for i := range maxRepeats + 30 {
		newest = b.deliver(t, fmt.Sprint("e-", i), delivery.Delivered)
	}
	asked, cursor := 0, ""
	for range 2 {
		var got repeatAnswer
		b.ask(t, access.Operator, "POST", "/v1/reactions/repeat", `{"filter":{"state":"delivered"}`+cursor+`}`).into(t, 200, &got)
		asked += got.Result.Asked
		cursor = `,"cursor":"` + got.Preview.Next + `"`
		if last := asked > maxRepeats; last != (got.Preview.Next == "") {
			t.Errorf("after %d the cursor is %q", asked, got.Preview.Next)
		}
		again, err := b.cfg.Deliveries.Read(t.Context(), newest.ID)
		if err != nil || again.Repeats != 1 {
			t.Fatalf("%+v, %v", again, err)
		}
		again.State = delivery.Delivered // once more, and matches
		if err := b.cfg.Deliveries.Save(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
	if asked != maxRepeats+30 {
		t.Errorf("%d were repeated", asked)
	}
}

// An error names the field and does not repeat its value, which may be a secret or a
// script.
func TestHostile_ErrorsDoNotRepeatWhatWasSent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const secret = "hunter2-sesame"
	script := `<script>` + secret + `</script>`
	q := url.QueryEscape(script)
	for _, ask := range [][3]string{
		{"POST", "/v1/dlq/preview", `{"action":"replay","filter":"` + secret},
		{"POST", "/v1/dlq/preview", `{"action":"` + secret + `","filter":{}}`},
		{"POST", "/v1/dlq/preview", `{"action":"replay","ids":["` + secret + `"]}`},
		{"POST", "/v1/dlq/preview", `{"action":"replay","filter":{"` + script + `":1}}`},
		{"POST", "/v1/dlq/preview", `{"action":"replay","filter":{"since":"` + secret + `"}}`},
		{"POST", "/v1/dlq/preview", `{"action":"replay","filter":{"status":["` + secret + `"]}}`},
		{"POST", "/v1/dlq/preview", `["` + secret + `"]`},
		{"POST", "/v1/dlq/preview", `"` + secret + `"`},
		{"POST", "/v1/dlq/preview", secret},
		{"POST", "/v1/dlq/preview", `{"a":"` + secret + `","a":1}`},
		{"POST", "/v1/dlq/jobs", `{"action":"archive","object":"` + secret + `"}`},
		{"POST", "/v1/reactions/repeat", `{"ids":["` + secret + `"]}`},
		{"POST", "/v1/reactions/repeat", `{"filter":{},"cursor":"` + secret + `"}`},
		{"GET", "/v1/dlq/dead-letters?status=" + q, ""},
		{"GET", "/v1/dlq/dead-letters?cursor=" + q, ""},
		{"GET", "/v1/dlq/dead-letters?limit=" + q, ""},
		{"GET", "/v1/dlq/dead-letters?since=" + q, ""},
		{"GET", "/v1/dlq/dead-letters/" + secret, ""},
		{"GET", "/v1/dlq/jobs/" + secret, ""},
		{"GET", "/v1/deliveries?state=" + q, ""},
		{"GET", "/v1/" + secret, ""},
		{"GET", "/" + url.PathEscape(script), ""},
	} {
		a := b.ask(t, access.Admin, ask[0], ask[1], ask[2])
		if a.code < 400 || a.code >= 500 {
			t.Errorf("%s %s %s = %d: %s", ask[0], ask[1], ask[2], a.code, a.body)
		}
		if strings.Contains(string(a.body), secret) {
			t.Errorf("%s %s %s: the answer repeats it: %s", ask[0], ask[1], ask[2], a.body)
		}
	}
}
