//go:build peers

package e2e

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

// The whole path over a real Apache Kafka.
func TestPeerKafka_AsSeparateProcesses(t *testing.T) {
	startCluster(t, peers.StartKafka(t, peers.Config{}).Addr).check()
}
