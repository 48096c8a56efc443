//go:build peers

package conformance

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

var update = flag.Bool("update", false, "record Cassandra's answers anew")

// A real Cassandra answers as recorded. CASSANDRA_ADDR names one that runs
// already; without it one is started.
func TestPeerCassandra_AnswersAsRecorded(t *testing.T) {
	addr := os.Getenv("CASSANDRA_ADDR")
	if addr == "" {
		addr = peers.StartCassandra(t, peers.Config{}).Addr
	}
	for _, f := range readCorpus(t) {
		want, got := readRecording(t, f), recording{}
		for _, c := range f.cases {
			runCase(t, addr, c, func(i int, answer []string) {
				got[key(c, i)] = answer
				if w := want[key(c, i)]; !*update && !slices.Equal(w, answer) {
					t.Errorf("%s: %s\nCassandra answers\n%s\nrecorded is\n%s", c.steps[i].where, c.steps[i].text, indent(answer), indent(w))
				}
			})
		}
		if *update {
			got.write(t, f)
		}
	}
}
