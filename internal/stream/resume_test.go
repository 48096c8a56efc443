package stream

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Clients that disconnect and resume at their last position, also on other processes and
// during publication, miss and repeat no event.
func TestHub_ResumesWithoutLossOrDouble(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 3000
	first := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	at := first.Position()
	first.Close()
	produced := make(chan struct{})
	go func() { defer close(produced); b.produce(t, "a", 0, n) }()
	seen := map[int]int{}
	progress := time.Now()
	for hub, rounds := b.Hub, 0; len(seen) < n; rounds++ {
		if time.Since(progress) > patience {
			t.Error("nothing has come for a long time")
			break
		}
		if rounds%3 == 2 && time.Since(progress) < time.Second {
			hub, _ = startHub(t, b.broker)
		}
		s, err := hub.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Gaps) > 0 {
			t.Fatalf("gaps %v", s.Gaps)
		}
		for i := 0; i < 1+rounds*37%701; i++ {
			e, err := s.nextWithin(t.Context(), 300*time.Millisecond)
			if errors.Is(err, errIdle) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			seen[number(t, e)]++
			progress = time.Now()
		}
		text := s.Position().String()
		s.Close()
		if at, err = ParsePosition(text); err != nil {
			t.Fatal(err)
		}
	}
	<-produced
	for i := range n {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
}

func TestHub_ReportsDeletedRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.produce(t, "a", 0, 30)
	from := Position{"a": {0: 0, 1: 0, 2: 0}}
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, from)
	if seen := read(t, s, 30); len(seen) != 30 || len(s.Gaps) != 0 {
		t.Fatalf("saw %d of 30, gaps %v", len(seen), s.Gaps)
	}
	after := s.Position()
	s.Close()
	var ends kadm.Offsets
	for partition, next := range after["a"] {
		ends.AddOffset("a", partition, next, -1)
	}
	deleted, err := b.adm.DeleteRecords(t.Context(), ends)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	again := b.subscribe(t, Filter{Topics: []string{"a"}}, from)
	defer again.Close()
	var missing int64
	for _, g := range again.Gaps {
		missing += g.To - g.From
	}
	if missing != 30 {
		t.Errorf("gaps %v, want 30 records", again.Gaps)
	}
	idle(t, again)
}

// Events that are removed from a topic while missed events are read, or while a follower
// adds topics, are reported and not skipped silently.
func TestHub_ReportsRecordsDeletedDuringARead(t *testing.T) {
	t.Parallel()
	for name, torn := range map[string]bool{"behind": false, "with more topics": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.produce(t, "a", 0, 30)
			f := Filter{Topics: []string{"a"}}
			s := b.subscribe(t, f, Position{"a": {0: 0, 1: 0, 2: 0}})
			defer s.Close()
			s.behind.Close() // it may have read them already
			s.behind = nil
			b.deleteAll(t, "a")
			b.produce(t, "a", 100, 10)
			if torn {
				s.until, s.torn = nil, true
			} else {
				var err error
				if s.behind, err = b.reader(s.at); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if e, err := s.Next(ctx); !errors.Is(err, ErrGone) {
				t.Fatalf("Next() = %s, %v, want ErrGone", e, err)
			}
			again := b.subscribe(t, f, s.Position())
			defer again.Close()
			var missing int64
			for _, g := range again.Gaps {
				missing += g.To - g.From
			}
			if missing != 30 {
				t.Errorf("gaps %v, want 30 records", again.Gaps)
			}
			wantOnce(t, read(t, again, 10), 100, 10)
		})
	}
}

// deleteAll removes all records of a topic.
func (b *fixture) deleteAll(t *testing.T, topic string) {
	t.Helper()
	ends, err := b.adm.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	deleted, err := b.adm.DeleteRecords(t.Context(), ends.Offsets())
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestHub_BrokerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(ports ...int) *kfake.Cluster {
		opts := []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(dir)}
		if len(ports) > 0 {
			opts = append(opts, kfake.Ports(ports...))
		} else {
			opts = append(opts, kfake.SeedTopics(3, "a"))
		}
		c, err := kfake.NewCluster(opts...)
		// Its port is anybody's for the time between.
		for end := time.Now().Add(patience); err != nil && len(ports) > 0 && time.Now().Before(end); c, err = kfake.NewCluster(opts...) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	b := &fixture{broker: start()}
	addr := b.broker.ListenAddrs()[0]
	b.Hub, b.stop = startHub(t, b.broker)
	var err error
	if b.producer, err = kgo.NewClient(kgo.SeedBrokers(addr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.producer.Close)
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	defer s.Close()
	b.produce(t, "a", 0, 10)
	read(t, s, 10)
	b.broker.Close()
	port, err := strconv.Atoi(addr[strings.LastIndex(addr, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	start(port)
	b.produce(t, "a", 10, 10)
	seen := read(t, s, 10)
	for i := 10; i < 20; i++ {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
}

// A subscription to a topic that is deleted and recreated receives the new one from its
// start, and so does one to all topics.
func TestHub_ATopicThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	named := b.subscribe(t, Filter{Topics: []string{"a", "b"}}, nil)
	defer named.Close()
	following := b.subscribe(t, Filter{Types: []string{"Type0", "Type1"}}, nil)
	defer following.Close()
	b.produce(t, "a", 0, 30)
	read(t, named, 30)
	read(t, following, 30)
	b.remake(t, "a")
	b.produce(t, "a", 100, 10)
	b.produce(t, "b", 200, 10)
	for _, s := range []*Subscription{named, following} {
		wantOnce(t, read(t, s, 20), 100, 10, 200, 10)
		idle(t, s)
	}
}

// remake deletes and recreates a topic.
func (b *fixture) remake(t *testing.T, topic string) {
	t.Helper()
	if _, err := b.adm.DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if _, err := b.adm.CreateTopic(t.Context(), 3, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	b.producer.PurgeTopicsFromProducing(topic)
}

// A transaction ends with an offset without a record. A client that resumes after one
// must not wait for it. The events of an aborted one are not sent.
func TestHub_ResumesBehindATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	writer, err := kgo.NewClient(kgo.SeedBrokers(b.broker.ListenAddrs()...), kgo.TransactionalID("writer"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	transact := func(first, n int, end kgo.TransactionEndTry) {
		t.Helper()
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		from := *b
		from.producer = writer
		from.produce(t, "a", first, n)
		if err := writer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write := func(first, n int) {
		t.Helper()
		transact(900, 5, kgo.TryAbort)
		transact(first, n, kgo.TryCommit)
	}
	s := b.subscribe(t, Filter{Topics: []string{"a"}}, nil)
	write(0, 20)
	wantOnce(t, read(t, s, 20), 0, 20)
	at := s.Position()
	s.Close()
	for round := range 2 {
		first := 100 + 50*round
		hub, _ := startHub(t, b.broker)
		s, err := hub.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, at)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; s.behind != nil; n++ {
			if idle(t, s); n == 100 { // 30 s
				t.Fatal("it still waits for an event at the offset where the transaction ended")
			}
		}
		write(first, 20) // comes live
		wantOnce(t, read(t, s, 20), first, 20)
		at = s.Position()
		s.Close()
		write(first+20, 20) // while it is away
		s, err = hub.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, at)
		if err != nil {
			t.Fatal(err)
		}
		wantOnce(t, read(t, s, 20), first+20, 20)
		idle(t, s)
		at = s.Position()
		s.Close()
	}
}
