package relay

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// slowOnce is a store whose first save takes a minute.
type slowOnce struct {
	checkpointStore
	first sync.Once
}

func (s *slowOnce) SavePosition(ctx context.Context, generation time.Time, stream []byte, position gocql.UUID) error {
	var wait time.Duration
	s.first.Do(func() { wait = time.Minute })
	time.Sleep(wait)
	return s.checkpointStore.SavePosition(ctx, generation, stream, position)
}

// A save that takes long does not replace the later position of another save.
func TestStreams_SavesDoNotOvertakeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, store, m := newTestStreams(t)
		s.store = &slowOnce{checkpointStore: store}
		p := open(t, m, testStart, "a")
		var saves sync.WaitGroup
		for seconds := 1; seconds <= 2; seconds++ {
			p.settle(p.begin(at(seconds), 1))
			saves.Go(func() {
				if err := s.save(t.Context(), []*streamProgress{p}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		saves.Wait()
		if got, _ := store.Position(t.Context(), testStart, []byte("a")); got != at(2) {
			t.Errorf("checkpoint = %s, want the last settled %s", got.Time(), at(2).Time())
		}
	})
}
