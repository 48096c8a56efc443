package ports

import (
	"net"
	"testing"
)

// A port is returned once, and a port in use never.
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
			t.Fatalf("listen on a free port: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if take(addr) == nil {
			t.Errorf("%s is returned again", addr)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if take(l.Addr().String()) == nil {
		t.Errorf("%s is returned, but is in use", l.Addr())
	}
}
