package verify

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
)

// Brokers whose metadata are behind do not know a topic, for minutes. Its events are not missing, by
// a pass or a single verification: a repair would publish them again. In a topic that no broker knows
// they are.
func TestVerify_ATopicThatABrokerDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		nodes   []int32
		missing bool
	}{{"some", []int32{0, 1}, false}, {"all", nil, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, scyllatest.Config(), kfake.NumBrokers(3))
			e := event(1, 1)
			b.write(e)
			b.publish(0, e)
			fault := b.broker.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Metadata}, Nodes: tt.nodes, Topic: e.Type, Count: -1, Err: kerr.UnknownTopicOrPartition,
			})
			defer fault.Remove()
			for range 4 { // each asks any broker
				var log strings.Builder
				v := b.verifier(&log)
				v.cfg.Window = 0
				err := v.verify(t.Context(), 0)
				if missing := len(v.Missing()) > 0; missing != tt.missing || err != nil && tt.missing {
					t.Errorf("a pass reports a missing event: %t, %v, want %t", missing, err, tt.missing)
				}
				check := b.verification()
				if err = check.Run(t.Context()); err == nil {
					counts := check.Ledger().Check(check.Window, func(Finding) {})
					if missing := counts.Missing > 0; missing != tt.missing {
						t.Errorf("a verification reports a missing event: %t, want %t", missing, tt.missing)
					}
				} else if tt.missing {
					t.Error(err)
				}
			}
		})
	}
}
