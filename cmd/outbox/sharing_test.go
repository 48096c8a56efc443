package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// sharer is one of several instances in the process of the test.
type sharer struct {
	*app.Sharing
	reg   *prometheus.Registry
	stop  context.CancelFunc
	ended chan error
}

func (b *verifyFixture) share(shards int) *sharer {
	b.t.Helper()
	s := b.sharer(shards)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.ended <- s.Run(ctx) }()
	b.t.Cleanup(s.leave)
	return s
}

// sharer is share before the instance runs.
func (b *verifyFixture) sharer(shards int) *sharer {
	b.t.Helper()
	c, err := parseConfig(b.t, "relay: {confidence_window: 3s, topics: [ThingHappened=things]}", nil,
		"--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--relay-shards", fmt.Sprint(shards), "--relay-session-timeout", "5m")
	if err != nil {
		b.t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		b.t.Fatal(err)
	}
	s := &sharer{reg: prometheus.NewRegistry(), ended: make(chan error, 1)}
	if s.Sharing, err = app.NewSharing(c, confs, b.session, slog.New(slog.DiscardHandler), s.reg, nil); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// leave stops the instance, as SIGTERM does.
func (s *sharer) leave() {
	s.stop()
	<-s.ended
	s.ended <- nil
}

// detail returns the response of /readyz.
func (s *sharer) detail(t *testing.T) (ready bool, text string) {
	t.Helper()
	ready, d := s.Readiness()()
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return ready, string(b)
}

// awaitShards waits until the instance has so many shards and is ready.
func (s *sharer) awaitShards(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ready, text := s.detail(t)
		if len(s.Member.Status().Owned) == n && ready {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not ready with %d shards: %s", n, text)
		}
	}
}

// The owner of a shard is not ready before its relays run: until then it reads the number of shards
// from the database, which may be away.
func TestSharing_NotReadyBeforeItCarries(t *testing.T) {
	t.Parallel()
	s := setupVerify(t).sharer(1)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	asking := func(ctx context.Context, _ *share.Hold) error { <-ctx.Done(); return nil }
	go func() { ended <- s.Member.Run(ctx, "a database", asking) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for end := time.Now().Add(5 * time.Minute); len(s.Member.Status().Owned) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it owns no shard")
		}
	}
	if ready, text := s.detail(t); ready || !strings.Contains(text, "owned and not started yet: shard 0") {
		t.Errorf("an instance that carries nothing of what it owns: ready %t, %s", ready, text)
	}
}

// Two databases whose relays have one name and one cluster of brokers: the second instance would be
// a ready standby for ever, and its events would never be published.
func TestSharing_RefusesAnotherDatabase(t *testing.T) {
	t.Parallel()
	b, other := setupVerify(t), setupVerify(t)
	other.e.KafkaAddr = b.e.KafkaAddr
	b.share(1).awaitShards(t, 1)
	if err := other.sharer(1).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "on another database") {
		t.Errorf("Run() = %v, want that the group belongs to another database", err)
	}
}

// An instance that no broker acknowledges reports an outage, so that notifications and the status
// report it: it runs no shard that has a breaker. The time of the first failure stays.
func TestSharing_WithoutABroker(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	b.e.KafkaAddr = freeAddr(t)
	b.share(2)
	var began time.Time
	var at time.Time // of the heartbeat that had it
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		all, err := relay.Outages(t.Context(), b.session, "outbox", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var heard time.Time
		if err := b.session.Query("SELECT at FROM relay_instances WHERE scope = 'keyspace' AND relay = 'outbox' LIMIT 1").Scan(&heard); err != nil && !errors.Is(err, gocql.ErrNotFound) {
			t.Fatal(err)
		}
		if len(all) == 1 && strings.Contains(all[0].Cause, "refused") && all[0].Unreachable && all[0].Relay == "outbox" && time.Since(all[0].Since) < time.Minute {
			if began.IsZero() {
				began, at = all[0].Since, heard
			}
			if !all[0].Since.Equal(began) {
				t.Fatalf("the outage began at %s, and later at %s", began, all[0].Since)
			}
			if heard.After(at) {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("Outages() = %+v, want the instance", all)
		}
	}
}

// Two instances share the shards of a table; one of them leaves and the other one continues. Every
// event is published once and in order.
func TestSharing_InstancesShareATable(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	one := b.share(4)
	one.awaitShards(t, 4)
	whole := relay.Defaults().DedupMemory / 36
	if got := dedupLimit(t, one.reg); got != float64(whole/4) {
		t.Errorf("a shard of an instance with all four may have %v events in the dedup index, want %v", got, whole/4)
	}
	two := b.share(4)
	one.awaitShards(t, 2)
	two.awaitShards(t, 2)
	for _, s := range []*sharer{one, two} {
		if got := dedupLimit(t, s.reg); got != float64(whole/2) {
			t.Errorf("a shard of an instance with two may have %v events in the dedup index, want %v", got, whole/2)
		}
	}
	aggregates := make([]gocql.UUID, 24)
	for i := range aggregates {
		aggregates[i] = outbox.NewID().UUID()
	}
	write := func(seq int64) {
		for _, a := range aggregates {
			b.add(seq, a, 0)
		}
	}
	write(1)
	write(2)
	if _, text := two.detail(t); !strings.Contains(text, `"shards":4`) || strings.Count(text, `-of-04":{`) != 2 {
		t.Errorf("/readyz has %s", text)
	}
	if n := shardsWithMetrics(t, one.reg); n != 2 {
		t.Errorf("one has metrics of %d shards, want 2", n)
	}
	three := b.share(4) // and what moves while events come
	write(3)
	one.leave()
	write(4)
	if n := shardsWithMetrics(t, one.reg); n != 0 {
		t.Errorf("one has metrics of %d shards when it has left", n)
	}
	two.awaitShards(t, 2)
	three.awaitShards(t, 2)
	write(5)
	got := b.awaitPublished(t, 5*len(aggregates))
	for _, a := range aggregates {
		if want := []int64{1, 2, 3, 4, 5}; !slices.Equal(got[a], want) {
			t.Errorf("aggregate %s has %v in its topic, want %v", a, got[a], want)
		}
	}
}

// dedupLimit is the limit of the first shard of the registry.
func dedupLimit(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "outbox_relay_dedup_fresh_limit" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// shardsWithMetrics is of how many shards the registry has metrics of relays.
func shardsWithMetrics(t *testing.T, reg *prometheus.Registry) (n int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "outbox_relay_streams" {
			n += len(f.GetMetric())
		}
	}
	return n
}

// awaitPublished are the sequence numbers in the topic by aggregate, once there are n
// records and no more come.
func (b *verifyFixture) awaitPublished(t *testing.T, n int) map[gocql.UUID][]int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.e.KafkaAddr), kgo.ConsumeTopics("things"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, count := make(map[gocql.UUID][]int64), 0
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		wait := 5 * time.Second
		if count >= n {
			wait = 500 * time.Millisecond // more would be too many
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		fetches := client.PollFetches(ctx)
		cancel()
		if fetches.NumRecords() == 0 && count >= n {
			break
		}
		fetches.EachRecord(func(r *kgo.Record) {
			e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil {
				t.Error(err)
			}
			got[e.AggregateID.UUID()] = append(got[e.AggregateID.UUID()], e.Sequence)
			count++
		})
	}
	return got
}

// With one shard one instance works, and the other one is a ready standby.
func TestSharing_StandsBy(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	one := b.share(1)
	one.awaitShards(t, 1)
	two := b.share(1)
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ready, text := two.detail(t)
		if ready && strings.Contains(text, `"stands_by":true`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the one that stands by says %s", text)
		}
	}
	one.leave()
	two.awaitShards(t, 1)
}

// Another number of shards than the others have is refused, with what to do.
func TestSharing_ReportsTheNumberOfShards(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	one := b.share(2)
	one.awaitShards(t, 2)
	two := b.share(3)
	err := <-two.ended
	two.ended <- nil
	var h cli.Hint
	if !errors.As(err, &h) || !strings.Contains(err.Error(), "relay.shards is 3") || !strings.Contains(err.Error(), "into 2 shards") || !strings.Contains(h.Text, "outbox relay reshard --shards 3") {
		t.Errorf("run() error = %v, want that there are 2, and how to change that", err)
	}
}

// Wrong settings of sharing are refused with the name of the setting and the fix.
func TestConfig_Sharing(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--relay-shards=0":                             "relay.shards: 0 is not allowed; set it to 1 for one active instance and standbys",
		"--relay-shards=-1":                            "relay.shards: -1 is not allowed; set it to 1",
		"--relay-shards=257":                           "at most 256",
		"--relay-session-timeout=1ms":                  "relay.session_timeout: 1ms is below the limit of 1s",
		"--relay-session-timeout=10m":                  "relay.session_timeout: 10m is above the limit of 5m",
		"--relay-attempt-timeout=50s":                  "",
		"--relay-shards=256 --relay-name=Bestellungen": "",
	} {
		c, err := parseConfig(t, "", nil, strings.Fields(flags)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", flags, err, want)
		}
		if flags == "--relay-attempt-timeout=50s" && err == nil && c.Relay.Shards != 1 {
			t.Errorf("relay.shards is %d by default, want 1", c.Relay.Shards)
		}
	}
	if _, err := parseConfig(t, "relay: {shards: 0}", nil); err == nil || !strings.Contains(err.Error(), "relay.shards: 0 is not allowed") {
		t.Errorf("relay.shards 0 in the file: %v", err)
	}
}

// Before the schema is migrated an instance ends with an error that names the fix, rather than
// wait.
func TestSharing_BeforeTheSchemaIsMigrated(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	if err := b.session.Query("DROP TABLE outbox.relay_sharing").Exec(); err != nil {
		t.Fatal(err)
	}
	s := b.share(2)
	select {
	case err := <-s.ended:
		s.ended <- nil
		var h cli.Hint
		if !errors.As(err, &h) || !strings.Contains(h.Text, "outbox schema migrate") {
			t.Errorf("without the table relay_sharing: %v, want a hint to migrate", err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("without the table relay_sharing it waits")
	}
}
