//go:build fault || peers

package fault

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// sharedSession is the shortest session timeout that a broker allows by default.
const sharedSession = 6 * time.Second

// shareAndDie lets instances share four shards, and kills them and pauses them
// for longer than the session timeout, so that others take over without their
// knowledge. At the end no event is lost or duplicated.
func shareAndDie(t *testing.T, s *storm, admins []string, defaultStrikes uint64) {
	t.Helper()
	seed := seeds.Number(t, "FAULT_SEED", seeds.Of(t))
	strikes := int(seeds.Number(t, "FAULT_STRIKES", defaultStrikes))
	t.Logf("FAULT_SEED=%d FAULT_STRIKES=%d", seed, strikes)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s.lines, s.rate = 550*strikes, 150
	orders := startOrders(t, s.cql, s.api, s.admin)
	var relays []*harness.Process
	for _, admin := range admins {
		relays = append(relays, startRelay(t, s.cql, s.kafka, admin, "--relay-shards", "4", "--relay-session-timeout", sharedSession.String()))
	}
	load := s.load(t)
	harness.Until(t, "answers to the load", func() bool { return harness.Answered(s.admin) > s.rate })
	for i := range strikes {
		p := relays[rnd.IntN(len(relays))]
		if !p.Running() {
			t.Error("a relay ended by itself")
		}
		switch i % 4 {
		case 0, 2:
			p.Kill()
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			p.Restart()
		case 1: // longer than its lease: others own its shards when it continues
			for before := countFenced(p); countFenced(p) == before; { // again, if the group had just moved its shards
				awaitShards(t, admins)
				p.Signal(syscall.SIGSTOP)
				time.Sleep(sharedSession + time.Duration(2500+rnd.IntN(2000))*time.Millisecond)
				p.Signal(syscall.SIGCONT)
				harness.Until(t, "a relay that is fenced", func() bool { return countFenced(p) > before || allOwn(admins) })
			}
		case 3: // about as long as its lease
			awaitShards(t, admins)
			p.Signal(syscall.SIGSTOP)
			time.Sleep(sharedSession*3/5 + time.Duration(rnd.IntN(2500))*time.Millisecond)
			p.Signal(syscall.SIGCONT)
		}
		time.Sleep(time.Duration(rnd.IntN(2500)) * time.Millisecond)
	}
	s.judge(t, load)
	times := 0
	for _, p := range relays {
		times += countFenced(p)
		p.Stop()
	}
	t.Logf("instances stopped their shards by themselves %d times", times)
	orders.Stop()
}

// countFenced returns how often a relay has logged that it was fenced.
func countFenced(p *harness.Process) int {
	log := p.Log()
	return strings.Count(log, "shards stopped: the broker has acknowledged no heartbeat") + strings.Count(log, "shards lost: the broker")
}

// awaitShards waits until each instance owns a shard: one without shards has
// nothing to lose.
func awaitShards(t *testing.T, admins []string) {
	t.Helper()
	harness.Until(t, "a shard or more with each relay", func() bool { return allOwn(admins) })
}

// allOwn reports whether each instance owns a shard: then all are members of
// the group, and no shard is moving.
func allOwn(admins []string) bool {
	for _, admin := range admins {
		var ready struct {
			Owned []int `json:"owned_shards"`
		}
		resp, err := http.Get("http://" + admin + "/readyz") //nolint:noctx // the test ends with the process
		if err != nil {
			return false
		}
		err = json.NewDecoder(resp.Body).Decode(&ready)
		_ = resp.Body.Close()
		if err != nil || len(ready.Owned) == 0 {
			return false
		}
	}
	return true
}
