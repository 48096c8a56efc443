package releases

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

var (
	update = flag.Bool("update", false, "write the file of the unreleased version")
	digest = flag.Bool("digest", false, "record the digest of the file of the unreleased version")
)

// refused is an event type whose topic the broker refuses during the recording.
const refused = "Refused"

var operator = dlq.Actor{Name: "operator", Reason: "INC-311"}

// nameID is the id of a thing of the story.
func nameID(name string) gocql.UUID { return outbox.NameID(gocql.UUID{1}, name).UUID() }

// event is event number seq of an aggregate.
func event(aggregate string, seq int64, typ string, change ...func(*outbox.Event)) outbox.Event {
	e := outbox.Event{
		ID: outbox.IDFromUUID(nameID(fmt.Sprint(aggregate, "/", seq))), AggregateID: outbox.IDFromUUID(nameID(aggregate)), Sequence: seq, AggregateType: "parcel", Type: typ,
		Payload: fmt.Appendf(nil, `{"aggregate":%q,"n":%d}`, aggregate, seq), CreatedAt: time.Now(),
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

// append appends an event to the outbox, in a batch of its own.
func (w *world) append(e outbox.Event) {
	w.t.Helper()
	b := w.session.Batch(gocql.LoggedBatch)
	w.must(outbox.Append(b, e))
	w.must(b.Exec())
}

// happen writes an event to the table without sequence numbers.
func (w *world) happen(aggregate string, n int) {
	w.t.Helper()
	w.must(w.session.Query("INSERT INTO "+unnumbered+" (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'basket', 'Filled', ?)",
		aggregate, gocql.TimeUUID(), fmt.Sprintf(`{"n":%d}`, n)).Exec())
}

// refuse makes the broker refuse the topic of refused events until the returned function
// is called.
func (w *world) refuse() (end func()) {
	w.accept = w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: refused, Err: kerr.InvalidRecord, Count: -1}).Remove
	return w.accept
}

func newOrder(customer string) orders.NewOrder {
	return orders.NewOrder{
		Invoice: "I-1", CustomerID: &customer, Country: "DE", Currency: "EUR", Address: &orders.Address{Name: "A", Street: "S 1", City: "C", Region: "R", Postcode: "12345"},
		Lines: []orders.NewLine{{SKU: "a", Description: "Apple", Quantity: 3, UnitPrice: "3.39"}},
	}
}

// order is the request of an order that is repeated after an upgrade.
func order(w *world) orders.Result {
	return must1[orders.Result](w)(w.orders.Create(w.t.Context(), newOrder("c-1"), orders.WriteOptions{Client: "shop", IdempotencyKey: "order-1"}))
}

// message is the request of a message that is repeated after an upgrade.
func message(w *world) messages.Accepted {
	return must1[messages.Accepted](w)(w.messages.Accept(w.t.Context(), reminder("kept", "45m"), messages.Options{Client: "shop", IdempotencyKey: "message-1"}))
}

// keyedJob is the request of a job that is repeated after an upgrade; repeated reports that.
func keyedJob(w *world) (job *jobs.Job, repeated bool) {
	request := must1[requestkeys.Request](w)(requestkeys.New("admin", "operator", "job-1", "paused"))
	spec := jobs.Spec{Action: dlq.ActionDiscard, IDs: []gocql.UUID{event("paused", 1, "").ID.UUID()}, Rate: 5}
	job, repeated, err := w.jobs.CreateOnce(w.t.Context(), request, spec, operator)
	w.must(err)
	return job, repeated
}

func reminder(what string, delay httpapi.Duration) messages.NewMessage {
	priority, receive := 3, 5
	return messages.NewMessage{
		Topic: "reminders", Key: "customer-1", Payload: json.RawMessage(fmt.Sprintf("{%q:1}", what)), Headers: map[string]string{"what": what},
		Delay: delay, Priority: &priority, MaxReceive: &receive,
	}
}

func fence(w *world) *inbox.Fence {
	return must1[*inbox.Fence](w)(inbox.NewFence(w.t.Context(), w.session, inbox.FenceConfig{Keyspace: keyspace, Table: "totals"}))
}

func once(w *world) *inbox.Once {
	return must1[*inbox.Once](w)(inbox.NewOnce(w.t.Context(), w.session, inbox.OnceConfig{Keyspace: keyspace, Table: "mails"}))
}

// apply applies event seq of an aggregate of totals, in an epoch.
func apply(w *world, seq int64) inbox.Outcome {
	return must1[inbox.Outcome](w)(fence(w).Apply(w.t.Context(), inbox.Event{Key: inbox.Key{"customer-1"}, Sequence: seq, Epoch: 1_700_000_000, ID: fmt.Sprint("event ", seq)}, func(b *gocql.Batch) error {
		b.Query("UPDATE "+keyspace+".totals SET sum = ? WHERE id = ?", seq*10, "customer-1")
		return nil
	}))
}

// receive receives the messages that are available.
func receive(w *world, s subscriptions.Service, name string) (out []subscriptions.Message) {
	for {
		got := must1[[]subscriptions.Message](w)(s.Receive(w.t.Context(), name, subscriptions.Receive{Max: 100, Wait: 15 * time.Second, Consumer: "worker"}))
		if len(got) == 0 {
			return out
		}
		out = append(out, got...)
	}
}

func settle(w *world, s subscriptions.Service, name string, actions ...subscriptions.Settle) {
	for i, r := range must1[[]subscriptions.Result](w)(s.Settle(w.t.Context(), name, actions)) {
		if r.Code != subscriptions.CodeOK {
			w.t.Fatalf("%s: %+v", actions[i].Action, r)
		}
	}
}

// story runs the programs while a release is recorded. It ends with programs that have stopped,
// events that are not published, and requested changes of operators. It returns the ids that it
// chose, and the paths of the admin API whose responses are recorded.
func story(w *world) (facts map[string][]string, paths []string) {
	ctx := w.t.Context()
	stopScheduler := w.scheduler()
	stopAdmin := w.admin()
	_, stopRelays := w.relays()

	// Orders.
	first := order(w).Order.ID
	must1[orders.Result](w)(w.orders.Confirm(ctx, first, orders.Confirmation{}, orders.WriteOptions{IdempotencyKey: "confirm-1"}))
	must1[orders.Result](w)(w.orders.Ship(ctx, first, orders.Shipment{Carrier: "DHL", Tracking: "T1"}, orders.WriteOptions{}))
	second := must1[orders.Result](w)(w.orders.Create(ctx, newOrder("c-1"), orders.WriteOptions{RequestID: "r-2"})).Order.ID
	must1[orders.Result](w)(w.orders.Cancel(ctx, second, orders.Cancellation{CreditNote: "N-1", Reason: "changed their mind"}, orders.WriteOptions{}))
	for i := range 3 {
		must1[orders.Result](w)(w.orders.Create(ctx, newOrder(fmt.Sprint("c-", 2+i)), orders.WriteOptions{}))
	}
	sweeping, stopSweep := context.WithTimeout(ctx, 10*time.Second)
	w.orders.Sweep(sweeping)
	stopSweep()

	// Events of other services.
	for seq := range int64(3) {
		w.append(event("plain", seq+1, "Moved"))
	}
	w.append(event("headers", 1, "Moved", func(e *outbox.Event) {
		e.Headers = map[string]string{
			outbox.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", outbox.HeaderTraceState: "a=b",
			outbox.HeaderRequestID: "r-1", outbox.HeaderPartitionKey: "customer-42", "tenant": "t1",
		}
		e.ContentType, e.Payload = "text/plain", []byte("grüß dich")
	}))
	w.append(event("soon", 1, "Moved", func(e *outbox.Event) { e.DeliverAt = time.Now().Add(4 * time.Second) }))
	for n := range 3 {
		w.happen("basket-1", n+1)
	}
	w.happen("basket-2", 1)

	// Messages.
	now := must1[messages.Accepted](w)(w.messages.Accept(ctx, reminder("now", ""), messages.Options{Client: "shop"}))
	soon := must1[messages.Accepted](w)(w.messages.Accept(ctx, reminder("soon", "40s"), messages.Options{}))
	kept := message(w)
	cancelled := must1[messages.Accepted](w)(w.messages.Accept(ctx, reminder("cancelled", "50m"), messages.Options{}))
	w.must(w.messages.Cancel(ctx, cancelled.ID))
	time.Sleep(5*time.Minute + 30*time.Second) // the checkpoints pass them, and the history has a point
	stopAdmin()

	// Dead letters: the first event of each aggregate, and one that waits behind it.
	end := w.refuse()
	dead := []string{"open", "labelled", "discarded", "replayed", "resolved", "edited", "requested", "archived", "purged", "unblocked", "claimed", "failed", "suspended", "paused", "corrected"}
	for _, name := range dead {
		w.append(event(name, 1, refused, func(e *outbox.Event) { e.Headers = map[string]string{"tenant": name} }))
	}
	w.append(event("large", 1, "Moved", func(e *outbox.Event) { e.Type = "not a topic!" }))
	time.Sleep(5 * time.Second)
	for _, name := range []string{"open", "requested", "unblocked", "claimed"} {
		w.append(event(name, 2, "Moved"))
	}
	time.Sleep(10 * time.Second)
	operate(w, end)
	time.Sleep(10 * time.Second)
	w.refuse()

	// Subscriptions.
	e, stopEngine := w.subscribing("one")
	for _, s := range []subscriptions.Subscription{
		{
			Name: "inventory", Topics: []string{orders.EventCreated, "Moved"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute, MaxReceive: 3, Backoff: 20 * time.Minute, MaxBackoff: 20 * time.Minute,
			DeadLetter: subscriptions.DeadLetter{Name: "stock", RetentionDays: 90}, Transform: `{"headers": {"queue": "stock"}}`,
		},
		{Name: "paused", Topics: []string{"Order*"}, Types: []string{"OrderC*"}, Filter: `event_type != ""`, Ordering: subscriptions.OrderingStrict, Paused: true},
		{Name: "gone", Topics: []string{"Moved"}},
	} {
		must1[subscriptions.Subscription](w)(e.Put(ctx, s, "operator"))
	}
	// A process that has no such target does not run it.
	pushed := subscriptions.Subscription{Name: "pushed", Topics: []string{"Moved"}, Push: &subscriptions.Push{To: "log", Text: "{{ .Type }}", Concurrency: 2}}
	must1[store.Resource](w)(w.subs.Put(ctx, pushed.WithDefaults(), "operator"))
	time.Sleep(time.Minute)
	w.must(e.Seek(ctx, "paused", subscriptions.Seek{To: subscriptions.StartEarliest}, "operator"))
	// One message fails, with others of its key behind it, one is rejected, one is only
	// received, and others are acknowledged, some of them after these.
	facts = map[string][]string{"order": {first.String()}, "message": {kept.ID.String()}}
	for i, m := range receive(w, e, "inventory") {
		what, action := "acknowledged", subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: m.Receipt}
		switch {
		case m.ID == event("plain", 1, "").ID.String():
			what, action.Action, action.Reason = "nacked", subscriptions.ActionNack, "no stock"
		case m.AggregateID == first.String():
			what, action.Action, action.Reason = "rejected", subscriptions.ActionReject, "unknown article"
		case i%3 == 0:
			facts["received"] = append(facts["received"], m.ID)
			continue
		}
		facts[what] = append(facts[what], m.ID)
		settle(w, e, "inventory", action)
	}
	time.Sleep(time.Minute)

	// Inbox of consumers.
	apply(w, 1)
	apply(w, 2)
	if _, first, err := once(w).Do(ctx, "mail-1", func(context.Context) ([]byte, error) { return []byte("sent"), nil }); err != nil || !first {
		w.t.Fatalf("Do() = %t, %v", first, err)
	}

	// The audit trail has the requests of operate too.
	at := time.Now()
	w.must(w.session.Query("INSERT INTO "+keyspace+".admin_audit (day, id, actor, role, action, target, detail, reason, request_id, remote, state, outcome, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		at.UTC().Truncate(24*time.Hour), gocql.UUIDFromTime(at), "root@host", "admin", "reshard", "outbox", `{"to":1}`, "INC-1", "", "", "done", `{"shards":1}`, at).Exec())

	w.must(e.Delete(ctx, "gone", 0, "operator")) // whose messages no process removes any more
	stopEngine()
	stopScheduler()
	stopRelays()

	// After the last program has stopped.
	epoch := time.Now().Unix()
	w.must(epochs.Begin(ctx, w.session, keyspace, keyspace+".outbox_messages", 0, epoch, "ada", "restored"))
	last := must1[*epochs.Epoch](w)(epochs.Latest(ctx, w.session, keyspace, keyspace+".outbox_messages"))
	facts["epoch"] = []string{strconv.FormatInt(last.Epoch, 10)}
	w.append(event("plain", 4, "Moved"))
	w.append(event("new", 1, "Moved"))
	w.append(event("open", 3, "Moved"))
	w.happen("basket-1", 4)
	w.happen("basket-3", 1)
	must1[orders.Result](w)(w.orders.Create(ctx, newOrder("c-9"), orders.WriteOptions{}))
	must1[messages.Accepted](w)(w.messages.Accept(ctx, reminder("unpublished", ""), messages.Options{}))
	w.must(w.deadLetters.Replay(ctx, event("requested", 1, "").ID.UUID(), operator))
	w.edit("edited")
	w.must(w.deadLetters.Replay(ctx, event("claimed", 1, "").ID.UUID(), operator))
	must1[dlq.DeadLetter](w)(w.deadLetters.Claim(ctx, event("claimed", 1, "").ID.UUID(), "relay that died", 30*time.Second))

	paths = []string{
		"/v1/dead-letters?status=pending,blocked,processing,failed,suspended,resolved,archived", "/v1/dead-letters/stats", "/v1/dead-letters/groups", "/v1/jobs", "/v1/audit", "/v1/archives",
		"/v1/orders?customer_id=c-1", "/v1/messages?state=scheduled", "/v1/subscriptions", "/v1/subscriptions/inventory", "/v1/subscriptions/paused",
	}
	for _, id := range []gocql.UUID{first, second} {
		order := "/v1/orders/" + id.String()
		paths = append(paths, order, order+"/events", order+"/preview?change=confirm", order+"/preview?change=cancel")
	}
	for _, id := range []gocql.UUID{now.ID, soon.ID, kept.ID, cancelled.ID} {
		paths = append(paths, "/v1/messages/"+id.String())
	}
	for _, name := range dead {
		paths = append(paths, "/v1/dead-letters/"+event(name, 1, "").ID.String())
	}
	for _, e := range []outbox.Event{event("plain", 1, ""), event("headers", 1, ""), event("replayed", 1, ""), event("edited", 1, "")} {
		paths = append(paths, "/v1/events/"+e.ID.String()+"?aggregate_id="+e.AggregateID.String())
	}
	return facts, paths
}

// edit edits the dead letter of the first event of an aggregate.
func (w *world) edit(name string) {
	w.t.Helper()
	content := dlq.Edit{Payload: []byte(`{"edited":true}`), Headers: map[string]string{"tenant": name}}
	must1[gocql.UUID](w)(w.deadLetters.Edit(w.t.Context(), event(name, 1, "").ID.UUID(), content, operator, 0))
}

// operate changes dead letters as operators and relays do. end lets the broker accept
// refused events.
func operate(w *world, end func()) {
	ctx := w.t.Context()
	id := func(name string) gocql.UUID { return event(name, 1, "").ID.UUID() }
	priority := 7
	w.must(w.deadLetters.Set(ctx, id("labelled"), dlq.Labels{Priority: &priority, AddTags: []string{"vip", "eu"}}, operator))
	w.must(w.deadLetters.Discard(ctx, id("discarded"), operator))
	w.must(w.deadLetters.ResolveByHand(ctx, id("resolved"), operator))
	w.must(w.deadLetters.Unblock(ctx, id("unblocked"), operator))
	w.must(w.deadLetters.Suspend(ctx, id("suspended"), operator))
	w.must(w.deadLetters.Discard(ctx, id("archived"), operator))
	w.must(w.deadLetters.Archive(ctx, id("archived"), operator))
	w.must(w.deadLetters.Discard(ctx, id("purged"), operator))
	failing := id("failed")
	w.must(w.deadLetters.Replay(ctx, failing, operator))
	time.Sleep(5 * time.Second) // it is refused again
	for range 10 {
		l := must1[dlq.DeadLetter](w)(w.deadLetters.Read(ctx, failing))
		if l.Status == dlq.Failed {
			break
		}
		if l.Status == dlq.Suspended {
			w.must(w.deadLetters.Replay(ctx, failing, operator))
		}
		must1[dlq.DeadLetter](w)(w.deadLetters.Claim(ctx, failing, "another relay", time.Minute))
		must1[dlq.Status](w)(w.deadLetters.Fail(ctx, failing, "another relay", dlq.Failure{Class: "invalid_record", Code: "INVALID_RECORD", Text: "refused", Attempts: 1}))
	}
	end()
	w.must(w.deadLetters.Replay(ctx, id("replayed"), operator))
	w.edit("corrected")
	time.Sleep(5 * time.Second)

	runner := jobs.NewRunner(w.jobs, jobs.RunnerConfig{Owner: "releases", Archive: w.sweeper})
	stop := w.run(runner.Run)
	done := must1[*jobs.Job](w)(w.jobs.Create(ctx, jobs.Spec{Action: dlq.ActionPurge, IDs: []gocql.UUID{id("purged")}}, operator))
	for {
		j := must1[*jobs.Job](w)(w.jobs.Read(ctx, done.ID))
		if j.State == jobs.Done {
			break
		}
		time.Sleep(time.Second)
	}
	stop()
	must1[dlq.Swept](w)(w.sweeper.Sweep(ctx)) // it leaves the state of its duty
	paused, _ := keyedJob(w)
	w.must(w.jobs.Pause(ctx, paused.ID, operator))
}

// written returns what today's code writes during the story.
func written(t *testing.T, version string) (r *release) {
	t.Helper()
	bubble(t, time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), nil, func(w *world) {
		w.migrate()
		s := w.connect("")
		for _, stmt := range own() {
			w.must(s.Query(stmt).Exec())
		}
		sessions.Close(s)
		w.open()
		facts, paths := story(w)
		r = w.record(version)
		r.Facts = facts
		get := w.api()
		for _, path := range paths {
			code, body := get(path)
			if code != http.StatusOK {
				w.t.Fatalf("GET %s: %d %s", path, code, body)
			}
			r.Responses[path] = w.storedData(path, body)
		}
	})
	return r
}

// TestReleases_Write writes the file of the unreleased version.
func TestReleases_Write(t *testing.T) {
	if !*update {
		t.Skip("-update writes the file of the unreleased version")
	}
	version := unreleasedVersion(t)
	if version == "" {
		t.Fatal("CHANGELOG.md has no unreleased version, and the files of released ones never change")
	}
	if err := written(t, version).write(filepath.Join("testdata", version+".json")); err != nil {
		t.Fatal(err)
	}
}

// worded are members of responses in the words of the program that responds, or with the actions
// that it offers.
var worded = []string{"detail", "gaps", "may", "refusal", "source", "waits_for", "what"}

// storedData returns a response as far as it is stored data: without sentences of the program,
// and without the time of the request. Dead letters in a list are ids and states, as each has
// its own response.
func (w *world) storedData(path string, body json.RawMessage) json.RawMessage {
	var v any
	w.must(json.Unmarshal(body, &v))
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			_, listed := v["event_id"]
			listed = listed && strings.HasPrefix(path, "/v1/dead-letters?")
			maps.DeleteFunc(v, func(k string, _ any) bool {
				return slices.Contains(worded, k) || k == "at" && path == "/v1/dead-letters/stats" || listed && k != "event_id" && k != "status"
			})
			for _, x := range v {
				strip(x)
			}
		case []any:
			for _, x := range v {
				strip(x)
			}
		}
	}
	strip(v)
	return must1[json.RawMessage](w)(json.Marshal(v))
}

// unreleasedVersion is the version that is unreleased in CHANGELOG.md, empty for none.
func unreleasedVersion(t *testing.T) string {
	t.Helper()
	if m := regexp.MustCompile(`(?m)^## \[([0-9.]+)\] - unreleased$`).FindStringSubmatch(changelog(t)); m != nil {
		return m[1]
	}
	return ""
}

func changelog(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
