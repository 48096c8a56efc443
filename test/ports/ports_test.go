package ports

import (
	"net"
	"testing"
)

// A port is given out once, and one that somebody listens on not at all.
func TestTake(t *testing.T) {
	t.Parallel()
	addrs, err := Take(3)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, addr := range addrs {
		if seen[addr] {
			t.Errorf("%s twice", addr)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("listen on a port that is free: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if take(addr) == nil {
			t.Errorf("%s is given out again", addr)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if take(l.Addr().String()) == nil {
		t.Errorf("%s is given out, and somebody listens there", l.Addr())
	}
}
