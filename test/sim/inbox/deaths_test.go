package inbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A consumer dies at each message that it sends to the database, which is carried out or
// not. Its successor gets every event again and finds each effect applied once.
func TestFence_ConsumerDiesAtEachMessage(t *testing.T) {
	for _, order := range []inbox.Order{inbox.FromOne, inbox.FromAny, inbox.Increasing} {
		for _, carried := range []bool{false, true} {
			t.Run(fmt.Sprint("order ", order, " carried out ", carried), func(t *testing.T) {
				bubble(t, []string{totals}, func(t *testing.T, w world.World) {
					cfg := inbox.FenceConfig{Table: "totals", Order: order}
					successor := newFence(t, w.Session, cfg)
					for n := 1; ; n++ {
						id, l := fmt.Sprint("aggregate ", n), &line.Line{}
						session := connect(t, w.Node, l)
						mortal := newFence(t, session, cfg)
						ctx, died := context.WithCancel(t.Context())
						l.Arm(n, carried, died)
						for _, seq := range []int64{1, 1, 2, 1, 3} {
							_, _ = mortal.Apply(ctx, inbox.Event{Key: inbox.Key{id}, Sequence: seq}, effect(id, seq))
						}
						alive := !l.Dead()
						for _, seq := range numbers(4) {
							got, err := apply(t, successor, id, seq)
							if err != nil || alive && (got == inbox.Applied) != (seq == 4) {
								t.Errorf("message %d: event %d = %s, %v", n, seq, got, err)
							}
						}
						mustHave(t, w.Session, id, numbers(4)...)
						died()
						session.Close()
						if alive {
							if n < 8 {
								t.Errorf("a consumer sent only %d messages", n)
							}
							return
						}
					}
				})
			})
		}
	}
}
