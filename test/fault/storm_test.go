//go:build fault || peers

package fault

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/chaos"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

const (
	// defaultKills keeps make test short; make test-nightly kills 100 times.
	defaultKills = 10
	// window is the relay's confidence window. An order whose batch was cut off is
	// retried with its timestamp for up to the order service's write budget of 10
	// s, so rows can be that late here, and later on a busy machine.
	window = 30 * time.Second
	// relaySession is the session timeout of a relay: a killed one restarts, and its shard has
	// no owner for that long.
	relaySession = 2 * time.Second
	// attempts is the maximum number of attempts of the load per line: enough
	// until the last kill, for any start time of the processes.
	attempts = "10000"
)

var topics = []string{"OrderCreated", "OrderCancelled"}

// process is an outbox process as a victim.
func process(name string, p *harness.Process, weight int) *chaos.Victim {
	return &chaos.Victim{Name: name, Running: p.Running, Kill: p.Kill, Restart: p.Restart, Weight: weight}
}

// kills is the number of kills of a storm, FAULT_KILLS.
func kills(t *testing.T) int { return int(seeds.Number(t, "FAULT_KILLS", defaultKills)) }

// storm is a load of orders with kills.
type storm struct {
	cql, kafka, api string
	admin           string // of the order service
	victims         []*chaos.Victim
	// begun, if not nil, is called when the load has started, before the first
	// kill.
	begun func()
	// lines of the sample are loaded, at rate per second.
	lines, rate int
}

// run kills at random while orders arrive. At the end no event is lost or
// duplicated, each aggregate is in order, and each order has its events and
// vice versa.
func (s *storm) run(t *testing.T) {
	t.Helper()
	seed, kills := seeds.Number(t, "FAULT_SEED", seeds.Of(t)), kills(t)
	t.Logf("FAULT_SEED=%d FAULT_KILLS=%d", seed, kills)
	rnd := rand.New(rand.NewPCG(seed, 0))
	load := s.load(t)
	if s.begun != nil {
		s.begun()
	}
	storm := chaos.Kills{Victims: s.victims, Number: kills, Pause: 1500 * time.Millisecond, Down: 700 * time.Millisecond}
	if err := storm.Run(t.Context(), rnd); err != nil {
		t.Error(err)
	}
	stillLoading := load.Running()
	for _, v := range s.victims {
		t.Logf("%s killed %d times", v.Name, v.Kills())
		if v.Kills() == 0 {
			t.Errorf("%s was never killed", v.Name)
		}
		if !v.Running() {
			t.Errorf("%s ended by itself", v.Name)
		}
	}
	if !stillLoading {
		t.Log("the load ended before the last kill")
	}
	s.judge(t, load)
}

// load begins the load.
func (s *storm) load(t *testing.T) *harness.Process {
	t.Helper()
	return harness.Start(t, "load", "load", harness.Sample(t, s.lines), "--api", "http://"+s.api, "--rate", strconv.Itoa(s.rate), "--attempts", attempts, "-o", "json")
}

// judge waits for the load and the relay and compares the topics with the
// database.
func (s *storm) judge(t *testing.T, load *harness.Process) {
	t.Helper()
	for answered := -1; load.Running(); { // a busy machine is slow, but makes progress
		harness.Until(t, "the next response to the load, or its end", func() bool {
			n := harness.Answered(s.admin)
			more := n > answered
			answered = max(n, answered)
			return more || !load.Running()
		})
	}
	load.Wait()
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
	if sum.Created+sum.Cancelled != s.lines || sum.Rejected != 0 {
		t.Errorf("load: %+v, want %d orders and cancellations in the end", sum, s.lines)
	}
	harness.Reachable(t, s.cql) // it may have been the last to die
	harness.Reachable(t, s.kafka)
	account := harness.NewAccount(t, s.cql, s.kafka, topics...)
	r := account.Wait()
	t.Log(r)
	if !r.OK() || r.Duplicates != 0 {
		t.Errorf("%s, want 0 of each", r)
	}
	// The load received a response to each order and cancellation: none may be
	// missing, and a retried request made no second one.
	if r.Orders != sum.Created || r.Events != sum.Created+sum.Cancelled {
		t.Errorf("%d orders and %d events are stored, want %d and %d", r.Orders, r.Events, sum.Created, sum.Created+sum.Cancelled)
	}
}

// startOrders applies the schema to a running database and starts the order
// service; startRelay starts a relay with the small window.
func startOrders(t *testing.T, cql, api, admin string) *harness.Process {
	t.Helper()
	harness.Reachable(t, cql)
	harness.Must(t, "schema", "migrate", "--scylla-hosts", cql, "--components", "schedule,subscriptions,orders")
	p := harness.Start(t, "orders", "orders", "--scylla-hosts", cql, "--orders-addr", api, "--ops-addr", admin)
	harness.Ready(t, api)
	return p
}

func startRelay(t *testing.T, cql, kafka, admin string, more ...string) *harness.Process {
	t.Helper()
	return harness.Start(t, "relay", append([]string{
		"relay", "--scylla-hosts", cql, "--kafka-seeds", kafka, "--ops-addr", admin,
		"--relay-confidence-window", window.String(), "--relay-session-timeout", relaySession.String(),
	}, more...)...)
}
