//go:build fault || peers

package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// effects are the rows that the example consumer "inventory" stores.
type effects struct {
	Applied map[string][]int64
	Numbers map[string]int
	Mails   map[string]string
}

// apply applies an event of an order once.
func (e *effects) apply(order string, sequence int64, sku string, quantity int) {
	for _, s := range e.Applied[order] {
		if s == sequence {
			return
		}
	}
	if sequence == 2 { // the cancellation
		quantity = -quantity
	}
	e.Numbers[sku] += quantity
	e.Applied[order] = append(e.Applied[order], sequence)
}

func newEffects() *effects {
	return &effects{map[string][]int64{}, map[string]int{}, map[string]string{}}
}

// subscribers are processes of 'outbox subscriptions' and two consumers of the same
// events: one in Go, and one in Python with the standard library alone.
type subscribers struct {
	t          *testing.T
	cql, kafka string
	serving    map[string]*harness.Process // by URL
	client     *client.Client
	broker     *kgo.Client
	want       *effects

	mu  sync.Mutex
	got *effects // of the consumer in Go
}

// killOwners kills the owner of partitions again and again while the consumers work. Both have
// each effect once, in the order of each event's numbers, and nothing is left.
func killOwners(t *testing.T, cql, kafka string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("python3 is needed: %v", err)
	}
	harness.Must(t, "schema", "migrate", "--scylla-hosts", cql)
	s := &subscribers{t: t, cql: cql, kafka: kafka, serving: map[string]*harness.Process{}, want: newEffects(), got: newEffects()}
	if s.broker, err = kgo.NewClient(kgo.SeedBrokers(kafka)); err != nil {
		t.Fatal(err)
	}
	defer s.broker.Close()
	if _, err := kadm.NewClient(s.broker).CreateTopics(t.Context(), 6, 1, nil, "OrderCreated", "OrderCancelled"); err != nil {
		t.Fatal(err)
	}
	addrs := harness.FreeAddrs(t, 6)
	for i := range 3 {
		s.serving["http://"+addrs[i]] = harness.Start(t, fmt.Sprint("subscriptions", i), "subscriptions", "--scylla-hosts", cql, "--kafka-seeds", kafka,
			"--subscriptions-addr", addrs[i], "--ops-addr", addrs[3+i])
		harness.Reachable(t, addrs[i])
	}
	api := "http://" + addrs[0]
	s.client = &client.Client{URL: api}
	for _, name := range []string{"go", "python"} {
		if _, err := s.client.Put(t.Context(), client.Subscription{Name: name, Topics: []string{"Order*"}, Start: "earliest", VisibilityTimeout: "5s", MaxReceive: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	consumed := make(chan error, 1)
	go func() {
		consumed <- s.client.Consume(ctx, "go", s.handle, client.ConsumeOptions{VisibilityTimeout: 5 * time.Second})
	}()
	file := filepath.Join(t.TempDir(), "state.json")
	program := exec.CommandContext(t.Context(), python, "../../examples/consumers/consumers.py", "--api", api, "--subscription", "python", "--state", file)
	var output bytes.Buffer
	program.Stdout, program.Stderr = &output, &output
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	rnd := seeds.Rand(t)
	orders := 0
	for kill := range max(kills(t)/4, 4) {
		s.publish(orders, 120)
		orders += 120
		before := s.countApplied(s.read(file))
		harness.Until(t, "progress of both consumers", func() bool {
			s.mu.Lock()
			mine := s.countApplied(s.got)
			s.mu.Unlock()
			return s.countApplied(s.read(file)) > before && mine > before/2
		})
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		url := s.owner([]string{"go", "python"}[kill%2])
		t.Logf("kill %d: the owner at %s", kill+1, url)
		s.serving[url].Kill()
		s.serving[url].Restart()
	}
	equal := func(got *effects) bool {
		return reflect.DeepEqual(got.Numbers, s.want.Numbers) && s.countApplied(got) == s.countApplied(s.want)
	}
	harness.Until(t, "all effects", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return equal(s.got) && equal(s.read(file))
	})
	harness.Until(t, "every message settled", func() bool {
		for _, name := range []string{"go", "python"} {
			st, err := s.client.Status(t.Context(), name)
			if err != nil || st.Lag != 0 || st.DeadLetters != 0 || st.Deferred != 0 {
				return false
			}
		}
		return true
	})
	stop()
	if err := <-consumed; err != nil {
		t.Errorf("Consume() = %v", err)
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the consumer in Python: %v\n%s", err, output.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for language, got := range map[string]*effects{"Go": s.got, "Python": s.read(file)} {
		if !equal(got) {
			t.Errorf("effects in %s: %v, want %v", language, got.Numbers, s.want.Numbers)
		}
		for order, sequences := range got.Applied {
			if len(sequences) != len(s.want.Applied[order]) {
				t.Errorf("%s in %s: events %v, want %v", order, language, sequences, s.want.Applied[order])
			}
		}
	}
	for _, name := range []string{"go", "python"} {
		out := harness.Must(t, "verify", "--subscription", name, "--scylla-hosts", cql, "--kafka-seeds", kafka)
		t.Logf("verify: %s", strings.TrimSpace(out))
	}
	for _, p := range s.serving {
		p.Stop()
	}
}

// publish publishes n orders from first on; every third one is cancelled, and every fourth
// is published twice.
func (s *subscribers) publish(first, n int) {
	s.t.Helper()
	var records []*kgo.Record
	for i := first; i < first+n; i++ {
		order, sku := fmt.Sprint("order-", i), fmt.Sprint("sku-", i%7)
		for sequence, typ := range []string{"OrderCreated", "OrderCancelled"} {
			if sequence == 1 && i%3 != 0 {
				continue
			}
			e := outbox.Event{
				ID: outbox.NewID(), AggregateID: outbox.IDFromText(order), Sequence: int64(sequence + 1), AggregateType: "order", Type: typ, CreatedAt: time.Now(), ContentType: "application/json",
				Payload: fmt.Appendf(nil, `{"country":"X","currency":"EUR","total":"1.00","lines":[{"sku":%q,"quantity":%d}]}`, sku, i),
			}
			s.want.apply(order, e.Sequence, sku, i)
			r := kgo.Record{Topic: typ, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
			for range 1 + (i%4)/3 {
				again := r
				records = append(records, &again)
			}
		}
	}
	if err := s.broker.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// handle is the consumer in Go.
func (s *subscribers) handle(_ context.Context, d *client.Delivery) error {
	var order struct {
		Lines []struct {
			SKU      string
			Quantity int
		}
	}
	if err := json.Unmarshal(d.Payload(), &order); err != nil {
		return err
	}
	time.Sleep(5 * time.Millisecond) // so that messages are in progress when an owner is killed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got.apply(d.AggregateID, d.Sequence, order.Lines[0].SKU, order.Lines[0].Quantity)
	return nil
}

// read returns the state of the consumer in Python.
func (s *subscribers) read(file string) *effects {
	got := newEffects()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, got)
	}
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return got
}

func (s *subscribers) countApplied(e *effects) (n int) {
	for _, sequences := range e.Applied {
		n += len(sequences)
	}
	return n
}

// owner returns the URL of a process that owns partitions of a subscription now.
func (s *subscribers) owner(name string) (url string) {
	s.t.Helper()
	harness.Until(s.t, "an owner", func() bool {
		for at := range s.serving {
			c := &client.Client{URL: at}
			bounded, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
			st, err := c.Status(bounded, name)
			cancel()
			if err != nil {
				continue
			}
			owners := make(map[string]bool)
			for _, p := range st.Partitions {
				owners[p.Owner] = true
			}
			for _, i := range st.Instances {
				if owners[i.Instance] && s.serving[i.Address] != nil && time.Since(i.At) < 15*time.Second {
					url = i.Address
					return true
				}
			}
		}
		return false
	})
	return url
}
