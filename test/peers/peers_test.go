//go:build peers

package peers_test

import (
	"net"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

// A killed broker restarts on its directory and port.
func TestPeerKafka_KillAndRestart(t *testing.T) {
	dir := t.TempDir()
	first := peers.StartKafka(t, peers.Config{Dir: dir, Heap: "512m"})
	_, port, err := net.SplitHostPort(first.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", first.Addr); err == nil {
		c.Close()
		t.Fatal("still accepts connections after Kill")
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	again := peers.StartKafka(t, peers.Config{Dir: dir, Heap: "512m", Port: number})
	if again.Addr != first.Addr {
		t.Errorf("Addr = %s, want %s", again.Addr, first.Addr)
	}
}
