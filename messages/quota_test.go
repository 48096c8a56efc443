package messages

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Without tokens a quota belongs to an address: an IPv6 network has one quota,
// and new clients do not reset the ones of others.
func TestQuotas_ByAddress(t *testing.T) {
	t.Parallel()
	cfg := Config{MessagesPerSecond: 1}.withDefaults()
	now := time.Now()
	for _, tt := range []struct {
		name, first, second string
		shared              bool
	}{
		{"one IPv4 address", "address 192.0.2.1", "address 192.0.2.1", true},
		{"two IPv4 addresses", "address 192.0.2.1", "address 192.0.2.2", false},
		{"one IPv6 network", "address 2001:db8::1", "address 2001:db8::2", true},
		{"two IPv6 networks", "address 2001:db8::1", "address 2001:db8:0:1::1", false},
		{"two tokens", "2001:db8::1", "2001:db8::2", false},
	} {
		q := newQuotas(&cfg)
		if err := q.take(tt.first, MaxBatch, now); err != nil {
			t.Fatal(err)
		}
		if err := q.take(tt.second, MaxBatch, now); errors.As(err, new(*QuotaError)) != tt.shared {
			t.Errorf("%s: take() = %v, want one quota: %t", tt.name, err, tt.shared)
		}
	}
	q := newQuotas(&cfg)
	for i := range maxClients + 1 {
		if err := q.take(fmt.Sprint("client-", i), MaxBatch, now); err != nil {
			t.Fatal(err)
		}
	}
	if len(q.mu.clients) != maxClients {
		t.Errorf("%d clients are tracked after %d, want %d", len(q.mu.clients), maxClients+1, maxClients)
	}
}
