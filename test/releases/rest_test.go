package releases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/doctor"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// rest executes the statements that operators, failures and time cause, and the ones that the story
// of the releases leaves out.
func (w *world) rest() {
	w.restOfCommands()
	w.restOfRelays()
	w.restOfWriters()
	w.restOfDeadLetters()
	w.restOfJobs()
	w.restOfAdmin()
	w.restOfVerification()
	w.restOfSchedule()
	w.restOfSubscriptions()
	w.otherTable()
}

// restOfCommands opens the session of the commands, and checks the keyspace as outbox doctor does.
func (w *world) restOfCommands() {
	ctx := w.t.Context()
	c := w.config()
	c.Scylla.Need(schema.Outbox, schema.Orders)
	c.Scylla.Nodes = sessions.NewNodes(w.logger(), nil)
	session := must1[*gocql.Session](w)(c.Scylla.Session(keyspace))
	defer sessions.Close(session)
	time.Sleep(11 * time.Second) // the members of the cluster are read
	if down := c.Scylla.Nodes.Down(); len(down) > 0 {
		w.t.Errorf("nodes %q are down", down)
	}
	if ttl := must1[time.Duration](w)(app.RowTTL(ctx, session, keyspace+"."+outbox.DefaultTableName)); ttl <= 0 {
		w.t.Errorf("the TTL of the outbox is %s", ttl)
	}
	failed := map[string]string{}
	found := doctor.CheckScylla(ctx, c)
	for _, f := range found {
		if failed[f.Check] = ""; !f.OK {
			failed[f.Check] = f.Detail
		}
	}
	for _, check := range []string{"ScyllaDB is reachable", "all nodes of ScyllaDB answer", "schema", "CDC log of the outbox table", "checkpoints can be saved"} {
		if problem, checked := failed[check]; !checked || problem != "" {
			w.t.Errorf("check %q: made %t, %s", check, checked, problem)
		}
	}
}

// restOfRelays does what operators change about relays, and leaves a checkpoint of a CDC
// generation that ended days ago.
func (w *world) restOfRelays() {
	ctx := w.t.Context()
	shards := &relay.Agreement{Session: w.session, Keyspace: keyspace, Name: "shared"}
	must1[string](w)(shards.Database(ctx))
	if n := must1[int](w)(shards.AgreeOn(ctx, 4)); n != 4 {
		w.t.Errorf("agreed on %d shards, want 4", n)
	}
	for _, change := range [][2]int{{4, 8}, {8, 0}} {
		if n := must1[int](w)(shards.Change(ctx, change[0], change[1], "operator")); n != change[1] {
			w.t.Errorf("shards = %d, want %d", n, change[1])
		}
	}
	must1[[]string](w)(shards.Alive(ctx))

	repairs := relay.NewRepairs(w.session, keyspace, "outbox", outbox.DefaultTableName)
	asked := relay.Repair{ID: nameID("repair"), Aggregate: outbox.IDFromUUID(nameID("repaired")), EventID: nameID("event"), Sequence: 1}
	w.must(repairs.Ask(ctx, &asked))
	if taken := must1[bool](w)(repairs.Take(ctx, asked.ID)); !taken {
		w.t.Error("a repair that nobody has taken was not taken")
	}
	if all := must1[[]relay.Repair](w)(repairs.All(ctx)); len(all) != 1 {
		w.t.Errorf("repairs %+v, want one", all)
	}
	w.must(repairs.Forget(ctx, asked.ID))
}

// restOfWriters repeats an order that has changed since, appends as a service of its own, and
// meets another consumer of an effect.
func (w *world) restOfWriters() {
	ctx := w.t.Context()
	if r := order(w); !r.Replayed || r.Order.Status != orders.StatusPlaced {
		w.t.Errorf("the repeated order is %+v, want the one that was placed", r)
	}
	a := must1[*outbox.Appender](w)(outbox.NewAppender(ctx, w.session, outbox.DefaultTable, outbox.AppenderConfig{}))
	for seq := range int64(2) {
		must1[outbox.Appended](w)(a.AppendNext(ctx, event("appended", seq+1, "Moved"), outbox.AppendOptions{}))
	}

	o, failed := once(w), errors.New("the effect failed")
	effect := func(err error) ([]byte, bool, error) {
		return o.Do(ctx, "mail-of-rest", func(context.Context) ([]byte, error) {
			if _, _, busy := o.Do(ctx, "mail-of-rest", func(context.Context) ([]byte, error) { return nil, nil }); !errors.As(busy, new(*inbox.BusyError)) {
				w.t.Errorf("a second consumer of an effect gets %v", busy)
			}
			return []byte("sent"), err
		})
	}
	if _, _, err := effect(failed); !errors.Is(err, failed) {
		w.t.Errorf("error of a failed effect = %v", err)
	}
	for _, want := range []bool{true, false} {
		result, first, err := effect(nil)
		if w.must(err); string(result) != "sent" || first != want {
			w.t.Errorf("result %q, first %t, want sent, %t", result, first, want)
		}
	}
}

// restOfDeadLetters purges, restores and forgets, holds a rule, and trims the lists.
func (w *world) restOfDeadLetters() {
	ctx := w.t.Context()
	write := func(name string, failed time.Time) gocql.UUID {
		l := dlq.DeadLetter{
			Table: keyspace + "." + unnumbered, EventID: nameID(name), AggregateID: name, AggregateType: "basket", EventType: "Filled", CreatedAt: failed, Payload: []byte(`{"n":1}`),
			ErrorClass: "invalid_record", ErrorText: "refused", Attempts: 1, FirstFailedAt: failed,
		}
		must1[dlq.Status](w)(w.deadLetters.Write(ctx, &l))
		return l.EventID
	}
	now := time.Now()
	edited := write("rest-edited", now)
	must1[gocql.UUID](w)(w.deadLetters.Edit(ctx, edited, dlq.Edit{Payload: []byte(`{"edited":true}`)}, operator, 0))
	copied := must1[dlq.Copy](w)(w.deadLetters.Copy(ctx, edited))
	must1[map[dlq.Status]int64](w)(w.deadLetters.Tally(ctx, dlq.OpenStatuses, time.Time{}, time.Time{}))
	w.must(w.deadLetters.Discard(ctx, edited, operator))
	w.must(w.deadLetters.Purge(ctx, edited, dlq.Purge{Archive: "copy"}, operator))
	w.must(w.deadLetters.Restore(ctx, edited, &copied, operator))
	if l := must1[dlq.DeadLetter](w)(w.deadLetters.Read(ctx, edited)); string(l.Payload) != `{"n":1}` {
		w.t.Errorf("restored payload %s", l.Payload)
	}
	w.must(w.deadLetters.Purge(ctx, edited, dlq.Purge{Force: true}, operator))
	w.must(w.deadLetters.Forget(ctx, edited))
	if err := w.deadLetters.Forget(ctx, edited); !errors.Is(err, dlq.ErrNotFound) {
		w.t.Errorf("a dead letter that does not exist was forgotten: %v", err)
	}

	// The hours of its lists, long ago, become empty.
	w.must(w.deadLetters.Discard(ctx, write("rest-old", now.Add(-5*time.Hour)), operator))
	if gone := must1[int](w)(w.deadLetters.Tidy(ctx)); gone == 0 {
		w.t.Error("no empty hour was removed from the lists")
	}
	must1[dlq.DeadLetter](w)(w.deadLetters.Oldest(ctx, dlq.Pending))

	table, hold := keyspace+"."+unnumbered, dlq.Hold{Rule: "rest", Reason: "INC-311", Since: now}
	w.must(w.deadLetters.SetHold(ctx, table, hold))
	if holds := must1[[]dlq.Hold](w)(w.deadLetters.Holds(ctx, table)); len(holds) != 1 {
		w.t.Errorf("holds %+v, want one", holds)
	}
	w.must(w.deadLetters.DropHold(ctx, table, hold))
}

// restOfJobs lets a second runner follow the replays of a job that the first one has requested.
func (w *world) restOfJobs() {
	ctx := w.t.Context()
	job := must1[*jobs.Job](w)(w.jobs.Create(ctx, jobs.Spec{Action: dlq.ActionReplay, IDs: []gocql.UUID{event("open", 1, "").ID.UUID()}}, operator))
	for _, owner := range []string{"first", "second"} {
		runner := jobs.NewRunner(w.jobs, jobs.RunnerConfig{Owner: owner})
		stop := w.run(runner.Run)
		time.Sleep(15 * time.Second)
		stop()
	}
	if j := must1[*jobs.Job](w)(w.jobs.Read(ctx, job.ID)); j.Progress.Total != 1 {
		w.t.Errorf("the progress of the job is %+v", j.Progress)
	}
}

// restOfAdmin changes a dead letter over the admin API, and reads what no response of the story has.
func (w *world) restOfAdmin() {
	call := w.api()
	type page struct {
		Next string `json:"next"`
	}
	ask := func(path string, body ...string) (p page) {
		code, answer := call(path, body...)
		if code != http.StatusOK {
			w.t.Errorf("%s: %d %s", path, code, answer)
		}
		_ = json.Unmarshal(answer, &p) // only a page has a next one
		return p
	}
	ask("/readyz")
	ask("/v1/history")
	ask("/v1/dead-letters/"+event("labelled", 1, "").ID.String()+"/set", `{"priority": 3}`)
	next := ask("/v1/jobs?limit=1").Next
	if next == "" {
		w.t.Error("a page of the jobs has no next one")
	}
	ask("/v1/jobs?limit=1&cursor=" + next)
}

// passed is a relay that reports that it has published everything.
type passed struct{}

// Passed implements verify.Relay.
func (passed) Passed(context.Context) (time.Time, error) { return time.Now(), nil }

// Repair implements verify.Relay.
func (passed) Repair(context.Context, []verify.Row) ([]gocql.UUID, error) { return nil, nil }

// restOfVerification verifies continuously while no relay runs: events are missing.
func (w *world) restOfVerification() {
	topic := func(e *outbox.Event) (string, error) {
		return relay.ExpandTopic(relay.Defaults().TopicTemplate, e.Type, e.AggregateType), nil
	}
	table := keyspace + "." + outbox.DefaultTableName
	v := verify.NewVerifier(verify.VerifierConfig{
		Tables: []verify.VerifierTable{{
			Scan: &verify.Scan{Session: w.session, Table: table, Topic: topic}, Keyspace: keyspace, Table: outbox.DefaultTableName, Source: relay.Defaults().Source, Relay: passed{},
			DeadLetters: app.DeadLettersOf{Store: w.deadLetters, Table: table},
		}},
		Kafka: testworld.Kafka(w.brokers()), Window: time.Second, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	w.must(v.Pass(w.t.Context()))
	if len(v.Missing()) == 0 {
		w.t.Error("no event is missing, though no relay has run")
	}
}

// restOfSchedule releases many messages of one time, one of them early, and one that was released
// by a scheduler that died, and removes a slot without a message. It runs until the minutes of all of them are closed.
func (w *world) restOfSchedule() {
	ctx := w.t.Context()
	at := time.Now().Add(90 * time.Second).Truncate(time.Millisecond)
	for i := range 30 { // several in each shard
		m := reminder(fmt.Sprint("together-", i), "")
		m.DeliverAt = &at
		must1[messages.Accepted](w)(w.messages.Accept(ctx, m, messages.Options{}))
	}
	early := must1[messages.Accepted](w)(w.messages.Accept(ctx, reminder("early", "20h"), messages.Options{}))
	must1[messages.View](w)(w.messages.DeliverNow(ctx, early.ID))

	// A scheduler has died between the release of a message and the write of its event.
	slot := early.DeliverAt.UTC()
	w.must(w.session.Query("UPDATE "+keyspace+".schedule_slots SET state = 'released', changed_at = ?, release_at = ? WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id = ? IF state = null",
		time.Now(), time.Now().Add(-time.Minute).UnixMicro(), slot.Truncate(time.Minute), int(early.ID[15])%8, slot, early.ID).Exec())
	stop := w.scheduler()
	time.Sleep(3 * time.Minute)
	stop()
	at = time.Now().Add(30 * time.Second).Truncate(time.Millisecond)
	for i := range 30 {
		m := reminder(fmt.Sprint("again-", i), "")
		m.DeliverAt = &at
		must1[messages.Accepted](w)(w.messages.Accept(ctx, m, messages.Options{}))
	}
	w.must(w.session.Query("INSERT INTO "+keyspace+".schedule_slots (bucket, shard, deliver_at, id, topic) VALUES (?, ?, ?, ?, ?)", // its message was never visible
		at.UTC().Truncate(time.Minute), 0, at, gocql.UUID{15: 8}, "reminders").Exec())
	stop = w.scheduler(func(c *schedule.Config) { c.MaxPending = 8 }) // a page of one for each shard
	time.Sleep(schedule.CloseAfter + 5*time.Minute)
	stop()
}

// restOfSubscriptions delivers small and large records of a topic again and again, and loses
// records and the topic.
func (w *world) restOfSubscriptions() {
	ctx := w.t.Context()
	const name, topic = "copied", "copies"
	create := func(keys ...string) {
		must1[kadm.CreateTopicResponse](w)(w.kafka.CreateTopic(ctx, 1, 1, nil, topic))
		producer := must1[*kgo.Client](w)(kgo.NewClient(w.brokers()...)) // without the id of a topic that is gone
		defer producer.Close()
		for _, key := range keys {
			r := kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("{}")}
			if key == "large" { // it is stored by a statement of its own
				r.Value = bytes.Repeat([]byte("x"), 200<<10)
			}
			w.must(producer.ProduceSync(ctx, &r).FirstErr())
		}
	}
	create("failing", "large", "settled", "lost", "lost as well")
	e, stop := w.subscribing("three")
	must1[subscriptions.Subscription](w)(e.Put(ctx, subscriptions.Subscription{
		Name: name, Topics: []string{topic}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute, MaxReceive: 9, Backoff: 20 * time.Second, MaxBackoff: 20 * time.Minute,
	}, "operator"))
	time.Sleep(30 * time.Second)
	for range 2 {
		for _, m := range receive(w, e, name) {
			switch m.Key {
			case "failing", "large":
				settle(w, e, name, subscriptions.Settle{Action: subscriptions.ActionNack, Receipt: m.Receipt, Reason: "not now"})
			case "settled":
				settle(w, e, name, subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: m.Receipt})
			}
		}
		time.Sleep(30 * time.Second)
	}
	stop()
	p := must1[subscriptions.Progress](w)(w.idle().Progress(ctx, name, subscriptions.Place{Topic: topic, At: time.Now()}))
	if p.State != subscriptions.ProgressDelayed {
		w.t.Errorf("the failing message is %s, want %s", p.State, subscriptions.ProgressDelayed)
	}

	var end kadm.Offsets
	end.Add(kadm.Offset{Topic: topic, At: 5})
	must1[kadm.DeleteRecordsResponses](w)(w.kafka.DeleteRecords(ctx, end))
	e, stop = w.subscribing("four")
	time.Sleep(time.Minute)
	w.must(e.AcknowledgeSkips(ctx, name, "operator"))
	stop()

	must1[kadm.DeleteTopicResponses](w)(w.kafka.DeleteTopics(ctx, topic))
	create("new")
	_, stop = w.subscribing("five")
	time.Sleep(time.Minute)
	stop()
	dead := 0
	w.must(w.deadLetters.List(ctx, dlq.Filter{Table: "subscription." + name}, func(*dlq.DeadLetter) error { dead++; return nil }))
	if dead != 2 {
		w.t.Errorf("%d dead letters of the topic that is gone, want those of 2 stored messages", dead)
	}

	for range 2 { // two incarnations of one name
		brief := subscriptions.Subscription{Name: "brief", Topics: []string{"Moved"}}
		r, err := w.subs.Put(ctx, brief.WithDefaults(), "operator")
		w.must(err)
		w.must(w.subs.Report(ctx, r.Name, subscriptions.InstanceStatus{Instance: "one"}))
		instances, err := w.subs.Instances(ctx, r.Name)
		if w.must(err); !slices.ContainsFunc(instances, func(i subscriptions.InstanceStatus) bool { return i.Instance == "one" }) {
			w.t.Errorf("instances %+v, want one", instances)
		}
		w.must(w.subs.Delete(ctx, r.Name, r.Version, "operator"))
	}
	deleted, err := w.subs.ListDeleted(ctx)
	if w.must(err); len(deleted) < 2 {
		w.t.Errorf("deleted subscriptions %+v, want two incarnations of brief", deleted)
	}
	for _, d := range deleted {
		w.must(w.subs.Clean(ctx, d.Incarnation))
	}
	if _, err := w.subs.Get(ctx, "brief"); err == nil {
		w.t.Error("a deleted subscription is still there")
	}
}

// otherTable lets a relay scan an outbox table that has the last event of an aggregate first, and
// another one begin that scan again from an earlier time.
func (w *world) otherTable() {
	const name = "latest_first"
	var text bytes.Buffer
	w.must(schema.Print(&text, schema.Options{Keyspace: keyspace, Components: []schema.Component{schema.Outbox}}))
	_, create, ok := strings.Cut(withoutComments(text.String()), "CREATE TABLE IF NOT EXISTS "+keyspace+"."+outbox.DefaultTableName)
	create, _, ends := strings.Cut(create, ";")
	if !ok || !ends || !strings.Contains(create, "(seq ASC)") {
		w.t.Fatalf("the outbox table is created by %s", text.String())
	}
	w.must(w.session.Query("CREATE TABLE " + keyspace + "." + name + strings.Replace(create, "(seq ASC)", "(seq DESC)", 1)).Exec())
	table := must1[outbox.Table](w)(outbox.NewTable(keyspace, name))
	for i := range int64(40) {
		b := w.session.Batch(gocql.LoggedBatch)
		w.must(table.Append(b, event(fmt.Sprint("other-", i/4), i%4+1, "Latest")))
		w.must(b.Exec())
	}
	for _, age := range []time.Duration{60 * time.Hour, 70 * time.Hour} { // checkpoints of generations that ended long ago
		w.must(w.session.Query("INSERT INTO relay_checkpoints (relay, table_name, generation, stream_id, updated_at) VALUES (?, ?, ?, ?, ?)",
			relay.Defaults().Name, keyspace+"."+name, time.Now().Add(-age), []byte{1}, time.Now()).Exec())
	}
	run := func(from time.Duration, rows int) (stop func()) {
		c := relay.Config{
			Session: w.session, Keyspace: keyspace, Logger: w.logger(), Brokers: []string{brokerAddr}, Kafka: []kgo.Opt{kgo.Dialer(w.net.DialContext)},
			LoadMeter: testworld.Idle{}, BackfillFrom: time.Now().Add(-from),
		}
		c.Table, c.Partitions, c.BackfillRowsPerSecond = name, 2, rows
		return w.run(must1[*relay.Relay](w)(relay.New(c)).Run)
	}
	stop := run(3*time.Hour, 1) // the first start needs no scan
	time.Sleep(20 * time.Second)
	stop()
	stop = run(time.Hour, 1)
	time.Sleep(20 * time.Second)
	stop()
	stop = run(2*time.Hour, 1000)
	time.Sleep(2 * time.Minute)
	stop()
	for lost := range int64(2) {
		if c := w.verifiedIn(name, "Latest"); c.Published != 40-lost || c.Unknown != lost || c.Missing+c.Disorder+c.Doubles > 0 {
			w.t.Errorf("with %d rows lost the verification found %+v, want 40 events in the topic, once and in order", lost, c)
		}
		// The database loses a row whose event is in the topic.
		w.must(w.session.Query("DELETE FROM "+name+" WHERE aggregate_id = ? AND seq = ?", event("other-0", 2, "").AggregateID.String(), 2).Exec())
	}
}

// verifiedIn compares an outbox table with its topic.
func (w *world) verifiedIn(table, topic string) verify.Counts {
	v := verify.Verification{
		Scan:     &verify.Scan{Session: w.session, Table: keyspace + "." + table, Ranges: 4, Topic: func(*outbox.Event) (string, error) { return topic, nil }},
		Keyspace: keyspace, Table: table, Kafka: testworld.Kafka(w.brokers()), Source: relay.Defaults().Source, Window: verify.Window{Until: time.Now()},
	}
	w.must(v.Run(w.t.Context()))
	return v.Ledger().Check(v.Window, nil)
}

// vnodes migrates a keyspace with vnodes, with a lock that must be renewed, and publishes from it:
// bursts, and then an aggregate that is never quiet beside streams that are.
func (w *world) vnodes() {
	ctx := w.t.Context()
	s := w.connect("")
	defer sessions.Close(s)
	if w.node != nil { // a real node takes longer to create the tables
		id := w.node.Faults().MustAdd(faults.Rule{Name: "slow", Match: faults.Match{Table: "schema_migrations"}, Effect: faults.Effect{Delay: time.Second}})
		defer func() { _ = w.node.Faults().Remove(id) }()
	}
	o := schema.Options{Keyspace: keyspace, Tablets: schema.TabletsOff, Components: []schema.Component{schema.DeadLetters}, LockTTL: 3 * time.Second}
	w.must(schema.Migrate(ctx, s, o))
	if has := must1[[]schema.Component](w)(schema.ReadInstalled(ctx, s, keyspace)); !slices.Contains(has, schema.DeadLetters) {
		w.t.Errorf("the keyspace has %q", has)
	}
	w.session = w.connect(keyspace)
	conf := relay.Config{
		Session: w.session, Keyspace: keyspace, Logger: w.logger(), Brokers: []string{brokerAddr}, Kafka: []kgo.Opt{kgo.Dialer(w.net.DialContext)},
		LoadMeter: testworld.Idle{},
	}
	conf.Partitions, conf.IdleCheckpoint = 2, 5*time.Second
	r := must1[*relay.Relay](w)(relay.New(conf))
	stop := w.run(r.Run)
	defer stop()
	time.Sleep(10 * time.Second)
	written := int64(0)
	for range 3 { // more than one slice of the rows to read again
		for range 15 {
			b := w.session.Batch(gocql.LoggedBatch)
			for range 50 {
				written++
				w.must(outbox.Append(b, event("burst", written, "Moved")))
			}
			w.must(b.Exec())
		}
		time.Sleep(2 * time.Second)
	}
	for n := int64(1); n <= 60; n++ {
		w.append(event("busy", n, "Moved"))
		written++
		time.Sleep(5 * time.Second)
	}
	var c verify.Counts
	for range 60 {
		if c = w.verifiedIn(outbox.DefaultTableName, "Moved"); c.Missing == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	if c.Published != written || c.Missing+c.Unknown+c.Disorder+c.Doubles > 0 {
		w.t.Errorf("the verification found %+v, want %d events, once and in order", c, written)
	}
	w.accepts()
}
