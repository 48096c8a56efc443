//go:build fault

package fault

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	defaultKills = 40
	// window is the relay's confidence window. An order whose batch was cut off
	// is tried again with its timestamp for up to the order service's write
	// budget of 10 s, so rows can be that late here.
	window = 15 * time.Second
	// lines of the sample, at so many a second: half a minute without kills.
	lines, rate = 6000, 150
)

var topics = []string{"OrderCreated", "OrderCancelled"}

// Each process is killed many times during a load. At the end nothing is lost,
// no event is there twice, each aggregate is in order, and no order is there
// without its event nor the other way round.
func TestFault_ProcessesKilledDuringALoad(t *testing.T) { killAll(t, lines, 0) }

// The same with a relay that starts for the first time when some of the load is
// in the outbox, and scans the table for it, as slowly as the kills take.
func TestFault_ProcessesKilledDuringABackfill(t *testing.T) {
	killAll(t, 3*lines/2, window+15*time.Second, "--backfill-from", "2000-01-01T00:00:00Z", "--relay-backfill-rows-per-second", "120")
}

// killAll kills processes during a load; the relay starts so long after it.
func killAll(t *testing.T, lines int, late time.Duration, relayArgs ...string) {
	t.Helper()
	seed := setting(t, "FAULT_SEED", uint64(time.Now().UnixNano()))
	kills := int(setting(t, "FAULT_KILLS", defaultKills))
	t.Logf("FAULT_SEED=%d FAULT_KILLS=%d", seed, kills)
	rnd := rand.New(rand.NewPCG(seed, 0))

	addrs := harness.FreeAddrs(t, 4)
	cql, kafka, api, admin := addrs[0], addrs[1], addrs[2], addrs[3]
	engines := harness.Start(t, "fake", "fake", "--data-dir", t.TempDir(), "--cql-addr", cql, "--kafka-addr", kafka, "--tokens", "16")
	harness.Reachable(t, cql)
	harness.Must(t, time.Minute, "schema", "migrate", "--scylla-hosts", cql)
	orders := harness.Start(t, "orders", "orders", "--scylla-hosts", cql, "--http-addr", api)
	harness.Reachable(t, api)
	load := harness.Start(t, "load", "load", harness.Sample(t, lines), "--api", "http://"+api, "--rate", strconv.Itoa(rate), "-o", "json")
	time.Sleep(late)
	relay := harness.Start(t, "relay", append([]string{
		"relay", "--scylla-hosts", cql, "--kafka-seeds", kafka, "--admin-addr", admin,
		"--relay-confidence-window", window.String(), "--relay-busy-delay", "100ms", "--relay-idle-delay", "200ms",
	}, relayArgs...)...)

	victims := []struct {
		name string
		p    *harness.Process
		n    int
	}{{"fake", engines, 0}, {"orders", orders, 0}, {"relay", relay, 0}}
	for range kills {
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		v := &victims[rnd.IntN(len(victims))]
		if !v.p.Running() {
			t.Errorf("%s ended by itself", v.name)
		}
		v.p.Kill()
		v.n++
		time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
		v.p.Restart()
	}
	stillLoading := load.Running()
	for _, v := range victims {
		t.Logf("%s killed %d times", v.name, v.n)
		if !v.p.Running() {
			t.Errorf("%s ended by itself", v.name)
		}
	}
	if !stillLoading {
		t.Log("the load ended before the last kill")
	}

	load.Wait(5 * time.Minute)
	var sum struct {
		Created   int `json:"orders_created"`
		Cancelled int `json:"orders_cancelled"`
		Rejected  int `json:"rejected"`
		Retried   int `json:"retried"`
	}
	if err := json.Unmarshal([]byte(load.Output()), &sum); err != nil {
		t.Fatalf("load printed %q: %v\n%s", load.Output(), err, load.Log())
	}
	t.Logf("load: %+v", sum)
	if sum.Created+sum.Cancelled != lines || sum.Rejected != 0 {
		t.Errorf("load: %+v, want %d orders and cancellations in the end", sum, lines)
	}
	harness.Reachable(t, cql) // it may have been killed last
	harness.Reachable(t, kafka)
	account := harness.NewAccount(t, cql, kafka, topics...)
	r := account.Wait(2 * window)
	t.Log(r)
	if !r.OK() || r.Duplicates != 0 {
		t.Errorf("%s, want 0 of all that", r)
	}
	// The load was told of each order and cancellation: none may be missing, and
	// a request that was repeated made no second one.
	if r.Orders != sum.Created || r.Events != sum.Created+sum.Cancelled {
		t.Errorf("%d orders and %d events are stored, want %d and %d", r.Orders, r.Events, sum.Created, sum.Created+sum.Cancelled)
	}
	if late > 0 && !strings.Contains(relay.Log(), "going on with a scan of the outbox table") {
		t.Error("the relay was never killed during its scan")
	}
	relay.Stop()
	orders.Stop()
	engines.Stop()
}

// setting is a number from the environment.
func setting(t *testing.T, name string, def uint64) uint64 {
	t.Helper()
	s, ok := os.LookupEnv(name)
	if !ok {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, s, err)
	}
	return n
}
