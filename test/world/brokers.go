package world

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

// BrokerVersion is a version of a broker, as far as a client can tell: the versions of the
// requests that it negotiates.
type BrokerVersion struct {
	Name    string
	options []kfake.Opt
	// TopicIDs reports whether the broker has ids of topics; CommitIDs, whether committed
	// offsets are of an id and not of a name.
	TopicIDs, CommitIDs bool
}

// Options returns the options of an embedded broker of this version.
func (v *BrokerVersion) Options() []kfake.Opt { return v.options }

// BrokerVersions are the versions that the product is tested with. The first one is the embedded
// broker without limits, the newest Kafka.
//
// Those of Redpanda are read from its source: 24.3 has no ids of topics; 25.3 has them in
// Metadata and Fetch, and names topics in Produce and OffsetCommit.
var BrokerVersions = []BrokerVersion{
	{Name: "newest", TopicIDs: true, CommitIDs: true},
	{Name: "Kafka 4.2", TopicIDs: true, CommitIDs: true, options: []kfake.Opt{kfake.MaxVersions(kversion.V4_2_0())}},
	{Name: "Kafka 4.1", TopicIDs: true, options: []kfake.Opt{kfake.MaxVersions(kversion.V4_1_0())}},
	{Name: "Redpanda 25.3", TopicIDs: true, options: []kfake.Opt{kfake.MaxVersions(redpanda(map[int16]int16{1: 13, 3: 12, 9: 8, 18: 4, 19: 7, 60: 0}))}},
	{Name: "Redpanda 24.3", options: []kfake.Opt{kfake.MaxVersions(redpanda(nil))}},
}

// redpanda returns the highest versions of the requests of Redpanda 24.3, by their keys, with
// the changes of a later version.
func redpanda(later map[int16]int16) *kversion.Versions {
	v := new(kversion.Versions)
	for _, versions := range []map[int16]int16{{
		0: 7, 1: 11, 2: 4, 3: 8, 8: 8, 9: 7, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 4, 17: 1, 18: 3, 19: 6, 20: 5, 21: 2, 22: 3, 23: 4,
		24: 3, 25: 1, 26: 3, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 35: 2, 36: 2, 37: 3, 42: 2, 44: 1, 45: 0, 46: 0, 47: 0, 48: 1, 49: 1,
		61: 0, 65: 0, 66: 0,
	}, later} {
		for key, version := range versions {
			v.SetMaxKeyVersion(key, version)
		}
	}
	return v
}

// EachBroker runs a test as a subtest for each version of the broker.
func EachBroker(t *testing.T, test func(t *testing.T, v *BrokerVersion)) {
	t.Helper()
	for i := range BrokerVersions {
		v := &BrokerVersions[i]
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// Redpanda returns the newest version of Redpanda.
func Redpanda() *BrokerVersion {
	for i := range BrokerVersions {
		if strings.HasPrefix(BrokerVersions[i].Name, "Redpanda") { // the newest first
			return &BrokerVersions[i]
		}
	}
	panic("there is no version of Redpanda")
}

// WithoutTopicIDs returns a version of the broker that has no ids of topics.
func WithoutTopicIDs() *BrokerVersion {
	for i := range BrokerVersions {
		if !BrokerVersions[i].TopicIDs {
			return &BrokerVersions[i]
		}
	}
	panic("all versions have ids of topics")
}
