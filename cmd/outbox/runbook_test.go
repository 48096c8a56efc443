package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// notExecuted are the beginnings of commands in the pages that the test does not execute, with the
// reasons.
var notExecuted = map[string]string{
	"outbox orders":        "runs until it is stopped",
	"outbox messages":      "runs until it is stopped",
	"outbox admin":         "runs until it is stopped",
	"outbox subscriptions": "runs until it is stopped",
	"outbox notifier":      "runs until it is stopped",
	"outbox relay --backfill-from TIME --reason 'restored'": "runs until it is stopped; TestBackfill_Forced",
	"outbox verify --wait-old":                              "waits for the confidence window; TestVerifyFlags_Wait",
	"outbox relay":                                          "runs until it is stopped; the test runs a relay in its process",
	"outbox schema new-epoch":                               "TestNewEpoch_*",
	"outbox dlq":                                            "names a group of commands",
	"outbox dlq purge":                                      "names a command; TestDLQ_PurgeAndRestore",
	"outbox dlq archive list|get|run|restore":               "names a group of commands",
	"outbox admin --config outbox.yaml":                     "runs until it is stopped",
	"OUTBOX_ADMIN_TOKENS=":                                  "runs until it is stopped; TestServer_* have the tokens",
	"outbox-dev ":                                           "another program",
	"curl ":                                                 "a request to a process that runs by itself",
	"nodetool ":                                             "a tool of ScyllaDB; the embedded database has no nodes to lose",
	"kafka-topics.sh ":                                      "a tool of Kafka",
	"chronyc ":                                              "a tool of the host",
	"zstd ":                                                 "a tool of the host; the archive's tests read its objects",
	"kubectl ":                                              "a tool of Kubernetes",
}

// runsCommands matches a line of a block, or code in a line, that begins with a program.
var (
	runsBlock = regexp.MustCompile(`^\$ (.+)$`)
	runsCode  = regexp.MustCompile("`((?:outbox|outbox-dev|curl|nodetool|kafka-topics\\.sh|chronyc|zstd|kubectl) [^`]+)`")
)

// advice contains the commands of a page by section, and which of them were executed.
type advice struct {
	mu       sync.Mutex
	commands map[string][]string
	executed map[string]map[string]bool
}

func readAdvice(t *testing.T, page string) *advice {
	t.Helper()
	text, err := os.ReadFile("../../docs/operators/" + page)
	if err != nil {
		t.Fatal(err)
	}
	a := &advice{commands: make(map[string][]string), executed: make(map[string]map[string]bool)}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "##") {
			section = title
		} else if m := runsBlock.FindStringSubmatch(line); m != nil {
			command, _, _ := strings.Cut(m[1], " # ")
			a.commands[section] = append(a.commands[section], strings.TrimSpace(command))
		} else {
			for _, m := range runsCode.FindAllStringSubmatch(line, -1) {
				a.commands[section] = append(a.commands[section], m[1])
			}
		}
	}
	return a
}

// take returns the arguments of the section's command that is or begins so, with the replacements,
// and records that it is executed. The text behind a pipe is for another program.
func (a *advice) take(t *testing.T, section, begins string, replacements ...string) []string {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.commands[section], begins)
	if i < 0 {
		i = slices.IndexFunc(a.commands[section], func(c string) bool { return strings.HasPrefix(c, begins) })
	}
	if i < 0 {
		t.Fatalf("section %q has no command that begins with %q; it has %q", section, begins, a.commands[section])
	}
	command := a.commands[section][i]
	if a.executed[section] == nil {
		a.executed[section] = make(map[string]bool)
	}
	a.executed[section][command] = true
	command, _, _ = strings.Cut(command, " | ")
	command = strings.NewReplacer(append([]string{"'…'", "INC-7", "TEXT", "INC-7"}, replacements...)...).Replace(command)
	var args []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args[1:]
}

// takeSame is take for a command that is the same in several sections, and is executed once.
func (a *advice) takeSame(t *testing.T, command string, sections ...string) (args []string) {
	t.Helper()
	for _, section := range sections {
		args = a.take(t, section, command)
	}
	return args
}

// check reports commands that were neither executed nor listed in notExecuted, and marks the used
// entries of it.
func (a *advice) check(t *testing.T, used map[string]bool) {
	t.Helper()
	for section, commands := range a.commands {
		for _, command := range commands {
			if a.executed[section][command] {
				continue
			}
			listed := false
			for begins := range notExecuted {
				if command == begins || strings.HasSuffix(begins, " ") && strings.HasPrefix(command, begins) || strings.HasSuffix(begins, "=") && strings.HasPrefix(command, begins) {
					used[begins], listed = true, true
				}
			}
			if !listed {
				t.Errorf("section %q: %q is not executed by this test; add it, or the reason to notExecuted", section, command)
			}
		}
	}
}

// execute runs arguments with the addresses of the engines, and an operator's yes to a question.
func (b *verifyFixture) execute(want int, args []string, more ...string) string {
	b.t.Helper()
	args = append(slices.Clone(args), more...)
	switch args[0] {
	case "verify":
		args = append(args, "--kafka-seeds", b.e.KafkaAddr)
		if !slices.Contains(args, "--subscription") {
			args = append(args, "--relay-topics", "ThingHappened=things", "--until", "0s")
		}
	case "doctor", "events", "relay":
		args = append(args, "--kafka-seeds", b.e.KafkaAddr)
	case "schema":
		if args[1] == "new-epoch" {
			args = append(args, "--kafka-seeds", b.e.KafkaAddr, "--relay-topics", "ThingHappened=things")
		}
	}
	if slices.Contains(args, "--reason") && args[0] != "verify" && !slices.Contains(args, "--yes") {
		args = append(args, "--yes")
	}
	var out, errOut bytes.Buffer
	if args[0] != "token" {
		args = append(args, "--scylla-hosts", b.e.CQLAddr)
	}
	if code := run(args, &out, &errOut); code != want {
		b.t.Errorf("outbox %q: exit status %d, want %d\n%s%s", args, code, want, out.String(), errOut.String())
	}
	return out.String() + errOut.String()
}

// relay runs a relay of the outbox table until the test, or stop, ends it.
func (b *verifyFixture) relay(change ...func(*relay.Config)) (stop func() error) {
	b.t.Helper()
	conf := relay.Config{Session: b.session, Brokers: []string{b.e.KafkaAddr}, Keyspace: "outbox", Logger: slog.New(slog.DiscardHandler)}
	conf.Topics, conf.Tail = map[string]string{"ThingHappened": "things"}, relay.TailOff
	conf.ConfidenceWindow, conf.IdleDelay, conf.IdleCheckpoint = 50*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	for _, f := range change {
		f(&conf)
	}
	r, err := relay.New(conf)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var beats sync.WaitGroup
	beats.Go(func() { r.Heartbeat(ctx, "test", 50*time.Millisecond) })
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		beats.Wait()
		return <-ended
	})
	b.t.Cleanup(func() { _ = stop() })
	return stop
}

// until waits for a state.
func (b *verifyFixture) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// repair executes verify --repair, and again while the relay takes the events for published, as the
// runbook advises.
func (b *verifyFixture) repair(args []string) {
	b.t.Helper()
	for range 5 {
		var out, errOut bytes.Buffer
		code := run(append(slices.Clone(args), "--kafka-seeds", b.e.KafkaAddr, "--relay-topics", "ThingHappened=things", "--until", "0s", "--scylla-hosts", b.e.CQLAddr), &out, &errOut)
		if code == cli.ExitOK {
			return
		}
		if !strings.Contains(out.String(), "unknown     event") {
			b.t.Fatalf("outbox %q: exit status %d\n%s%s", args, code, out.String(), errOut.String())
		}
	}
	b.t.Fatalf("outbox %q does not end", args)
}

// records returns the number of records of the topic things.
func (b *verifyFixture) records() (n int64) {
	ends, err := kadm.NewClient(b.client).ListEndOffsets(b.t.Context(), "things")
	if err != nil {
		b.t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// The commands that the operators' pages advise are executed, as they are written, on systems with
// the problems of their sections, and have the promised effects.
func TestRunbook(t *testing.T) {
	t.Parallel()
	runbook, deadLetters := readAdvice(t, "runbook.md"), readAdvice(t, "dead-letters.md")
	if n := len(runbook.commands); n < 40 {
		t.Fatalf("the runbook has %d sections with commands: the pattern is wrong", n)
	}
	t.Run("sections", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *advice, *advice){
			"missing events":   runbookMissingEvents,
			"CDC log":          runbookCDCLog,
			"dead letters":     runbookDeadLetters,
			"jobs and archive": runbookJobs,
			"shards":           runbookShards,
			"messages":         runbookMessages,
			"subscriptions":    runbookSubscriptions,
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); test(t, runbook, deadLetters) })
		}
	})
	used := make(map[string]bool)
	runbook.check(t, used)
	deadLetters.check(t, used)
	if outages := readAdvice(t, "outages.md"); len(outages.commands) > 0 {
		t.Errorf("outages.md has commands that are not executed: %q", outages.commands)
	}
	for begins := range maps.Keys(notExecuted) {
		if !used[begins] {
			t.Errorf("no page has %q any more", begins)
		}
	}
}

// Checks of a healthy system, and repairs of one that has lost events.
func runbookMissingEvents(t *testing.T, p, letters *advice) {
	b := setupVerify(t)
	b.execute(cli.ExitOK, p.takeSame(t, "outbox schema migrate", "An upgrade", "SchedulerIdle", "OutboxDeadLettersUnmonitored", "OutboxJobsFail"))
	if out := b.execute(cli.ExitOK, p.take(t, "OutboxDeadLettersNotWritten", "outbox schema status")); strings.Contains(out, "missing") {
		t.Errorf("schema status printed %s", out)
	}
	b.relay()
	a := outbox.NewID().UUID()
	b.add(1, a, 0)
	b.until("the event is published", func() bool { return b.records() == 1 })

	if out := b.execute(cli.ExitOK, p.take(t, "", "outbox status")); !strings.Contains(out, "No dead letters are open.") || !strings.Contains(out, "0 events") {
		t.Errorf("status printed %s", out)
	}
	if out := b.execute(cli.ExitOK, p.take(t, "", "outbox events list")); !strings.Contains(out, "no event") {
		t.Errorf("the list of waiting events printed %s", out)
	}
	if out := b.execute(cli.ExitOK, letters.take(t, "The web console", "outbox events list")); !strings.Contains(out, a.String()) {
		t.Errorf("the list of events printed %s", out)
	}
	if out := b.execute(cli.ExitOK, letters.take(t, "The web console", "outbox events ID", "ID", a.String())); !strings.Contains(out, "things") {
		t.Errorf("the timeline of an aggregate printed %s", out)
	}
	letters.takeSame(t, "outbox doctor", "Continuous verification")
	out := b.execute(cli.ExitOK, p.takeSame(t, "outbox doctor", "", "An upgrade", "OutboxRelayDown", "OutboxDatabaseUnavailable", "OutboxDatabaseNodeDown", "OutboxTailNearLimit", "OutboxBrokerLostRecords"))
	if !strings.Contains(out, "ScyllaDB is reachable") || !strings.Contains(out, "events/s") {
		t.Errorf("doctor printed %s", out)
	}
	letters.takeSame(t, "outbox verify", "Without access to the database", "Another topic", "Continuous verification", "One verification")
	if out := b.execute(cli.ExitOK, p.takeSame(t, "outbox verify", "An upgrade", "OutboxClockAhead", "OutboxPredecessorsUnproven", "OutboxLateEvents", "OutboxSequenceGaps")); !strings.Contains(out, "verdict: ok") {
		t.Errorf("verify printed %s", out)
	}

	// The topic loses its records.
	adm := kadm.NewClient(b.client)
	if _, err := adm.DeleteTopics(t.Context(), "things"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "things"); err != nil {
		t.Fatal(err)
	}
	if out, _, code := b.verify("--until", "0s"); code != cli.ExitFailed || !strings.Contains(out, "1 missing") {
		t.Errorf("exit status %d of a topic without the record: %s", code, out)
	}
	b.repair(p.takeSame(t, "outbox verify --repair", "OutboxTopicRecreated", "OutboxBrokerLostRecords", "OutboxEventsMissing", "OutboxSubscriptionSkipped"))
	if out, _, code := b.verify("--until", "0s"); code != cli.ExitOK {
		t.Errorf("exit status %d after the repair: %s", code, out)
	}
	b.add(2, a, 0)
	b.until("the next event is published", func() bool { return b.records() == 2 })

	// An event has the id of another one: it gets a new one.
	first, other := b.add(1, outbox.NewID().UUID(), 0), outbox.NewID()
	second := first
	second.AggregateID = other
	b.until("the first is published", func() bool { return b.records() == 3 })
	batch := b.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, second); err != nil {
		t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	if out := b.execute(cli.ExitFailed, p.take(t, "OutboxEventsContradict", "outbox verify")); !strings.Contains(out, other.String()) {
		t.Errorf("verify of an id of two aggregates printed %s", out)
	}
	second.ID = outbox.NewID()
	batch = b.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, second); err != nil {
		t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	b.repair(p.take(t, "OutboxEventsContradict", "outbox verify --repair"))
	if n := b.records(); n != 4 {
		t.Errorf("%d records, want both events of one id once", n)
	}

	// A writer skips a number.
	gap := outbox.NewID().UUID()
	b.add(1, gap, 0)
	b.add(3, gap, 0)
	if out := b.execute(cli.ExitFailed, p.take(t, "OutboxSequenceGaps", "outbox verify")); !strings.Contains(out, gap.String()) {
		t.Errorf("verify of a gap printed %s", out)
	}
}

// CDC is off while the relay is away: the relay ends with the statement that enables it, and
// publishes after it everything that was written without a log.
func runbookCDCLog(t *testing.T, p, _ *advice) {
	b := setupVerify(t)
	made := time.Now()
	stop := b.relay()
	b.add(1, outbox.NewID().UUID(), 0)
	b.until("the event is published", func() bool { return b.records() == 1 })
	b.until("a checkpoint is saved", func() bool {
		var streams int
		if err := b.session.Query("SELECT COUNT(*) FROM relay_checkpoints").Scan(&streams); err != nil {
			t.Fatal(err)
		}
		return streams > 0
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	// A change within a second of the creation of the table counts as a part of it.
	b.until("the table is older", func() bool { return time.Since(made) > 2*time.Second })
	if err := b.session.Query("ALTER TABLE outbox_messages WITH cdc = {'enabled': false}").Exec(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.add(1, outbox.NewID().UUID(), 0)
	}
	r, err := relay.New(relay.Config{Session: b.session, Brokers: []string{b.e.KafkaAddr}, Keyspace: "outbox"})
	if err != nil {
		t.Fatal(err)
	}
	ended, ok := errors.AsType[*outbox.MappingError](r.Run(t.Context()))
	if !ok || !strings.HasPrefix(ended.Fix, "ALTER TABLE ") {
		t.Fatalf("Run() error = %v, want the statement that enables CDC", ended)
	}
	if err := b.session.Query(ended.Fix).Exec(); err != nil {
		t.Fatal(err)
	}
	b.add(1, outbox.NewID().UUID(), 0)
	b.relay()
	b.until("the events without a log are published", func() bool { return b.records() == 5 })
	if out, _, code := b.verify("--until", "0s"); code != cli.ExitOK {
		t.Errorf("exit status %d: %s", code, out)
	}
}

// Dead letters beside a relay that runs.
func runbookDeadLetters(t *testing.T, p, letters *advice) {
	b := setupDLQ(t)
	class := func(aggregate string, status dlq.Status, class string) func(*dlq.DeadLetter) {
		return func(l *dlq.DeadLetter) {
			l.AggregateID, l.Status, l.ErrorClass, l.Topic = b.aggregate(aggregate), status, class, "things"
		}
	}
	head := b.writeDeadLetter(1, class("a", dlq.Suspended, "record_too_large"))
	next := b.writeDeadLetter(2, class("a", dlq.Blocked, "behind"))
	refused := b.writeDeadLetter(1, class("b", dlq.Suspended, "topic_not_allowed"))
	waiting := b.writeDeadLetter(2, class("b", dlq.Blocked, "behind"))
	stop := b.relay()
	running := func() {
		t.Helper()
		b.until("the relay runs", func() bool {
			var n int
			return b.session.Query("SELECT COUNT(*) FROM relay_instances WHERE scope = 'keyspace'").Scan(&n) == nil && n > 0
		})
	}
	running()
	const example = "01a2005c-395d-72e3-8401-994110828553"
	show := func(want []string, not string, args []string) {
		t.Helper()
		out := b.execute(cli.ExitOK, args)
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("outbox %q printed %s, want %q", args, out, text)
			}
		}
		if not != "" && strings.Contains(out, not) {
			t.Errorf("outbox %q printed %s, without %q", args, out, not)
		}
	}
	show([]string{"4 open"}, "", p.take(t, "", "outbox dlq stats"))
	show([]string{"4 open", "record_too_large"}, "", p.take(t, "OutboxDeadLetterBacklog", "outbox dlq stats"))
	show([]string{head, refused}, next, p.take(t, "OutboxDeadLetters", "outbox dlq list"))
	show([]string{head, refused}, next, p.take(t, "OutboxDeadLetterResolution", "outbox dlq list"))
	show([]string{head, next, refused, waiting}, "", p.take(t, "OutboxDeadLetterRate", "outbox dlq list"))
	show([]string{head, next}, refused, p.take(t, "OutboxBlockedTooLong", "outbox dlq list", "ID", b.aggregate("a")))
	show([]string{head}, "", letters.take(t, "Commands", "outbox dlq list"))
	show([]string{"too large"}, "", p.take(t, "OutboxDeadLetters", "outbox dlq get", example, head))
	show([]string{"too large"}, "", append(p.take(t, "OutboxReplaysFail", "outbox dlq get"), head))
	show([]string{"too large"}, "", append(letters.take(t, "Strategies", "outbox dlq get"), head))
	show([]string{"discard 1 dead letter"}, "", p.take(t, "OutboxDeadLetterBacklog", "outbox dlq discard", "…", "record_too_large"))
	if st := b.status(head); st != dlq.Suspended {
		t.Errorf("a dry run has made %s of the dead letter", st)
	}

	// A replay publishes the dead letter, and those behind it follow.
	b.execute(cli.ExitOK, p.take(t, "OutboxDeadLetters", "outbox dlq replay"))
	b.until("both are published", func() bool { return b.status(head) == dlq.Resolved && b.status(next) == dlq.Resolved })
	if err := stop(); err != nil {
		t.Error(err)
	}
	again := b.writeDeadLetter(1, class("c", dlq.Suspended, "record_too_large")) // the relay reads them at its start
	b.relay()
	running()
	b.execute(cli.ExitOK, letters.take(t, "Commands", "outbox dlq replay"))
	b.until("the next one is published", func() bool { return b.status(again) == dlq.Resolved })

	// The later events matter more than the order.
	b.execute(cli.ExitOK, p.take(t, "OutboxBlockedAggregates", "outbox dlq unblock", "EVENT_ID", refused))
	b.until("the later one is published", func() bool { return b.status(waiting) == dlq.Resolved })
	if st := b.status(refused); st != dlq.Suspended {
		t.Errorf("the unblocked one is %s", st)
	}
	show([]string{"unblock, 1 dead letter, reason INC-7"}, "", letters.take(t, "Commands", "outbox audit list"))

	wrong := b.writeDeadLetter(1, func(l *dlq.DeadLetter) {
		l.AggregateID, l.Status, l.CreatedAt = b.aggregate("d"), dlq.Suspended, time.Now()
	})
	if _, err := kadm.NewClient(b.client).CreateTopic(t.Context(), 1, 1, nil, "others"); err != nil {
		t.Fatal(err)
	}
	show([]string{"redirect 1 dead letter of 1 aggregate"}, "", append(letters.take(t, "Another topic", "outbox dlq redirect", "NAME", "others"), wrong, "--dry-run"))

	one := b.writeDeadLetter(0, func(l *dlq.DeadLetter) {
		l.Table, l.Status, l.AggregateID, l.EventType = "subscription.mail", dlq.Suspended, "", ""
	})
	show([]string{one}, refused, p.take(t, "OutboxSubscriptionDeadLetters", "outbox dlq list"))
	show([]string{"replay 1 dead letter"}, "", p.take(t, "OutboxSubscriptionDeadLetters", "outbox dlq replay"))
	if out := b.execute(cli.ExitOK, letters.take(t, "The admin API", "outbox token")); !strings.Contains(out, "ann:operator:sha256:") {
		t.Errorf("token printed %s", out)
	}
	b.execute(cli.ExitOK, letters.take(t, "The web console", "outbox token"))
}

// aggregate returns an id of an aggregate.
func (b *dlqFixture) aggregate(name string) string {
	return outbox.NameID(gocql.UUID{}, name).String()
}

// Jobs that no process runs, and the archive.
func runbookJobs(t *testing.T, p, letters *advice) {
	b := setupDLQ(t)
	dir := filepath.Join(t.TempDir(), "archive")
	queue := func() string {
		t.Helper()
		id := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = gocql.TimeUUID().String() })
		out, _ := b.run(cli.ExitWaits, "discard", id, "--yes", "--reason", "a test", "--detach", "-o", "json")
		_, rest, _ := strings.Cut(out, `"id": "`)
		job, _, _ := strings.Cut(rest, `"`)
		return job
	}
	job := queue()
	if out := b.execute(cli.ExitOK, p.take(t, "OutboxJobsNotRun", "outbox dlq jobs list")); !strings.Contains(out, job) {
		t.Errorf("jobs list printed %s", out)
	}
	for _, section := range []string{"OutboxJobPaused", "OutboxJobsFail"} {
		if out := b.execute(cli.ExitOK, p.take(t, section, "outbox dlq jobs get", "JOB", job)); !strings.Contains(out, job) {
			t.Errorf("jobs get printed %s", out)
		}
	}
	for _, args := range [][]string{
		p.take(t, "OutboxJobsNotRun", "outbox dlq jobs resume", "JOB", job),
		p.take(t, "OutboxJobPaused", "outbox dlq jobs resume", "JOB", queue()),
		append(letters.take(t, "Commands", "outbox dlq jobs resume", "JOB", queue()), "--reason", "INC-7"),
	} {
		if out := b.execute(cli.ExitOK, args); !strings.Contains(out, "1 changed") {
			t.Errorf("outbox %q printed %s", args, out)
		}
	}

	old := time.Now().Add(-60 * 24 * time.Hour)
	id := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.FirstFailedAt, l.LastFailedAt = old, old })
	past, err := dlq.Open(b.session, "outbox", dlq.WithClock(fixedClock(old)))
	if err != nil {
		t.Fatal(err)
	}
	if err := past.Discard(t.Context(), b.id(id), dlq.Actor{Name: "eve"}); err != nil {
		t.Fatal(err)
	}
	if out := b.execute(cli.ExitOK, p.take(t, "OutboxJobPaused", "outbox dlq archive run --dry-run"), "--archive-url", dir); !strings.Contains(out, "archive 1 dead letter") {
		t.Errorf("archive run --dry-run printed %s", out)
	}
	if out := b.execute(cli.ExitOK, p.take(t, "OutboxRetentionFails", "outbox dlq archive run", "/var/lib/outbox/archive", dir)); !strings.Contains(out, "1 changed") || b.status(id) != dlq.Archived {
		t.Errorf("archive run printed %s, and the dead letter is %s", out, b.status(id))
	}
	const example = "01a2005c-395d-72e3-8401-994110828553"
	if out := b.execute(cli.ExitOK, p.take(t, "The archive", "outbox dlq archive list"), "--archive-url", dir); !strings.Contains(out, ".jsonl.zst") {
		t.Errorf("archive list printed %s", out)
	}
	if out := b.execute(cli.ExitOK, p.take(t, "The archive", "outbox dlq archive get", example, id), "--archive-url", dir); !strings.Contains(out, `"payload"`) {
		t.Errorf("archive get printed %s", out)
	}
	if out := b.execute(cli.ExitOK, p.take(t, "The archive", "outbox dlq archive restore", example, id), "--archive-url", dir); !strings.Contains(out, "1 changed") || b.status(id) != dlq.Resolved {
		t.Errorf("archive restore printed %s, and the dead letter is %s", out, b.status(id))
	}
}

// fixedClock is a clock that does not advance.
type fixedClock time.Time

// Now returns the time of the clock.
func (c fixedClock) Now() time.Time { return time.Time(c) }

// Eight shards become four.
func runbookShards(t *testing.T, p, _ *advice) {
	b := setupVerify(t)
	s := b.share(8)
	s.awaitShards(t, 8)
	s.leave()
	const section = "Another number of shards"
	if out := b.execute(cli.ExitOK, p.take(t, section, "outbox relay reshard --shards 4 --dry-run")); !strings.Contains(out, "agree on 4") || b.agreedShards() != 8 {
		t.Errorf("reshard --dry-run printed %s, and %d shards are agreed", out, b.agreedShards())
	}
	if out := b.execute(cli.ExitOK, p.take(t, section, "outbox relay reshard --shards 4 --reason")); !strings.Contains(out, "divided into 4 shards") || b.agreedShards() != 4 {
		t.Errorf("reshard printed %s, and %d shards are agreed", out, b.agreedShards())
	}
}

// Messages of one client with a wrong delay are listed, counted, delivered and cancelled.
func runbookMessages(t *testing.T, p, _ *advice) {
	b := setupVerify(t)
	scheduleTwo(t, b.session)
	const section = "ScheduledMessagesOverdue"
	list := p.take(t, section, "outbox messages list", "--client C", "--client shop", "--created-since T", "--created-since 1h")
	if out := b.execute(cli.ExitOK, list); strings.Count(out, "shop") < 2 {
		t.Errorf("messages list printed %s", out)
	}
	filter := list[2:]
	change := p.take(t, section, "outbox messages deliver-now|cancel")
	for _, verb := range strings.Split(change[1], "|") {
		if out := b.execute(cli.ExitOK, append([]string{"messages", verb, "--dry-run"}, filter...)); !strings.Contains(out, verb+" 2 messages") {
			t.Errorf("messages %s --dry-run printed %s", verb, out)
		}
	}
	if out := b.execute(cli.ExitOK, append([]string{"messages", "deliver-now", "--reason", "INC-7"}, filter...)); !strings.Contains(out, "2 made due") {
		t.Errorf("messages deliver-now printed %s", out)
	}
}

// A subscription whose consumer does not return, or that is paused or has skipped records.
func runbookSubscriptions(t *testing.T, p, _ *advice) {
	q := startQueue(t)
	if _, err := q.Put(t.Context(), subscriptions.Subscription{Name: "mail", Topics: []string{"t"}}.WithDefaults(), "ada"); err != nil {
		t.Fatal(err)
	}
	do := func(want string, args []string) {
		t.Helper()
		status, out, errOut := q.outbox(t, args...)
		if status != cli.ExitOK || !strings.Contains(out+errOut, want) {
			t.Errorf("outbox %q: exit status %d\n%s%s, want %q", args, status, out, errOut, want)
		}
	}
	q.Publish("mail", "k", `{}`)
	for _, section := range []string{"Subscriptions", "OutboxSubscriptionSkipped", "OutboxPushSuspended"} {
		do("lag           1", p.take(t, section, "outbox subscriptions status", "NAME", "mail"))
	}
	if got, err := q.Receive(t.Context(), "mail", subscriptions.Receive{Max: 1, Consumer: "worker-7"}); err != nil || len(got) != 1 {
		t.Fatalf("Receive() = %+v, %v", got, err)
	}
	do("worker-7", p.take(t, "OutboxSubscriptionNotConsumed", "outbox subscriptions leases", "NAME", "mail"))
	do("ended", p.take(t, "OutboxSubscriptionNotConsumed", "outbox subscriptions end-lease", "NAME", "mail", "LEASE", "t-i1:0:0:1"))
	if got, err := q.Receive(t.Context(), "mail", subscriptions.Receive{Max: 1, Consumer: "worker-8"}); err != nil || len(got) != 1 {
		t.Errorf("Receive() after the end of the lease = %+v, %v, want the message", got, err)
	}
	if err := q.Pause(t.Context(), "mail", "a test"); err != nil {
		t.Fatal(err)
	}
	do("changed_by", p.take(t, "OutboxSubscriptionPaused", "outbox subscriptions get", "NAME", "mail"))
	do("resumed", p.take(t, "OutboxSubscriptionPaused", "outbox subscriptions resume", "NAME", "mail"))
	do("acknowledged", p.take(t, "OutboxSubscriptionSkipped", "outbox subscriptions acknowledge-skips", "NAME", "mail"))

	b := setupVerify(t)
	s, err := store.Open(b.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	sub := subscriptions.Subscription{Name: "mail", Topics: []string{"*"}, Start: subscriptions.StartEarliest}
	if _, err := s.Put(t.Context(), sub.WithDefaults(), "ada"); err != nil {
		t.Fatal(err)
	}
	b.add(1, outbox.NewID().UUID(), 1)
	args := p.take(t, "OutboxSubscriptionSkipped", "outbox verify --subscription", "NAME", "mail")
	if out, errOut, code := b.verify(args[1:]...); code != cli.ExitOK || !strings.Contains(out, "1 waiting") {
		t.Errorf("outbox %q: exit status %d\n%s%s", args, code, out, errOut)
	}
}
