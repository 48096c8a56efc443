package orders

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func BenchmarkService_Create(b *testing.B) {
	s := setup(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Create(b.Context(), testNewOrder(), WriteOptions{}); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkHTTP_Create(b *testing.B) {
	h := newHandler(b, setup(b).Service, apiserver.Config{})
	b.ReportAllocs()
	for b.Loop() {
		if r := world.Request(b, h, "POST", "/v1/orders", goodBody); r.Status != 201 {
			b.Fatal(r.Text)
		}
	}
}

func BenchmarkDecodeOrder(b *testing.B) {
	body := []byte(goodBody)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeOrder(body); err != nil {
			b.Fatal(err)
		}
	}
}
