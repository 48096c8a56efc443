package delivery

import (
	"context"
	"errors"
	"sync"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

const (
	// repeatAtOnce is the number of concurrent repeats of RepeatAll.
	repeatAtOnce = 16
	// maxCounted bounds the number of distinct errors in a Tally: a receiver may
	// send a different text for each event.
	maxCounted = 20
	// otherErrors is the key of all further errors.
	otherErrors = "(other errors)"
)

// Tally counts deliveries. Make one with NewTally.
type Tally struct {
	Deliveries int            `json:"deliveries"`
	ByRule     map[string]int `json:"by_rule"`
	ByPlugin   map[string]int `json:"by_plugin"`
	ByState    map[string]int `json:"by_state"`
	ByError    map[string]int `json:"by_error" doc:"Counts by the first 500 bytes of the last error; at most 20 errors, and (other errors)"`
}

// Add counts a delivery.
func (t *Tally) Add(d *Delivery) {
	t.Deliveries++
	t.ByRule[d.Rule]++
	t.ByPlugin[d.Plugin]++
	t.ByState[string(d.State)]++
	if d.Error == "" {
		return
	}
	key := cut(d.Error)
	if _, known := t.ByError[key]; !known && len(t.ByError) >= maxCounted {
		key = otherErrors
	}
	t.ByError[key]++
}

// NewTally returns an empty Tally.
func NewTally() *Tally {
	return &Tally{ByRule: map[string]int{}, ByPlugin: map[string]int{}, ByState: map[string]int{}, ByError: map[string]int{}}
}

// Asking is the result of RepeatAll.
type Asking struct {
	Asked   int `json:"asked" doc:"Deliveries that will be repeated"`
	Pending int `json:"pending" doc:"Pending deliveries, which are retried without a repeat"`
	Missing int `json:"missing" doc:"Expired deliveries"`
}

// RepeatAll is Repeat for many deliveries, concurrently and in no order. After
// an error more deliveries may be pending than Asked counts; a retry is
// harmless.
func (s *Store) RepeatAll(ctx context.Context, ids []gocql.UUID, by, reason string) (Asking, error) {
	var mu sync.Mutex
	var out Asking
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(repeatAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, err := s.Repeat(ctx, id, by, reason)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out.Asked++
			case errors.Is(err, ErrPending):
				out.Pending++
			case errors.Is(err, ErrNotFound):
				out.Missing++
			default:
				return err
			}
			return nil
		})
	}
	err := g.Wait()
	return out, err
}
