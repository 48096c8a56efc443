package checkpoint

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// slowOnce is a store whose first save takes a minute.
type slowOnce struct {
	Store
	first sync.Once
}

func (s *slowOnce) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	var wait time.Duration
	s.first.Do(func() { wait = time.Minute })
	time.Sleep(wait)
	return s.Store.SavePosition(ctx, generation, stream, position)
}

// A slow save does not replace the later position of another save.
func TestStreams_SavesDoNotOvertakeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, store, m := newTestStreams(t)
		s.store = &slowOnce{Store: store}
		p := open(t, m, relaytest.Start, "a")
		var saves sync.WaitGroup
		for seconds := 1; seconds <= 2; seconds++ {
			p.Settle(p.Begin(relaytest.At(seconds), 1))
			saves.Go(func() {
				if err := s.save(t.Context(), []*Stream{p}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		saves.Wait()
		if got, _ := store.Position(t.Context(), relaytest.Start, []byte("a")); got != relaytest.At(2) {
			t.Errorf("checkpoint = %s, want the last settled %s", got.Time(), relaytest.At(2).Time())
		}
	})
}
