package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/orders"
)

// traffic makes customers arrive at random, so many in about the given time. Each places
// an order. Three in ten cancel it, half of them immediately, some with two concurrent
// requests.
func (w *world) traffic(customers int, over time.Duration) {
	rnd := rand.New(rand.NewPCG(w.seed, 'c'))
	mean := float64(over) / float64(customers)
	w.ledger.customers.Go(func() {
		for range customers {
			time.Sleep(time.Duration(mean * rnd.ExpFloat64()))
			n := w.ledger.arrive()
			w.ledger.customers.Go(func() {
				c := &customer{w: w, name: fmt.Sprint("customer-", n), rnd: rand.New(rand.NewPCG(w.seed, uint64(n)))}
				c.visit()
			})
		}
	})
}

// customersAt makes customers arrive after these delays.
func (w *world) customersAt(times []time.Duration) {
	for _, d := range times {
		n := w.ledger.arrive()
		w.ledger.customers.Go(func() {
			time.Sleep(d)
			c := &customer{w: w, name: fmt.Sprint("customer-", n), rnd: rand.New(rand.NewPCG(w.seed, uint64(n)))}
			c.visit()
		})
	}
}

// customer is a caller of the order API that follows its documentation.
type customer struct {
	w    *world
	name string
	rnd  *rand.Rand
}

// service returns a random order service.
func (c *customer) service() *orders.Service {
	return c.w.services[c.rnd.IntN(len(c.w.services))]
}

func (c *customer) visit() {
	id, ok := c.place()
	if !ok || c.rnd.IntN(10) >= 3 {
		return
	}
	if c.rnd.IntN(2) == 0 {
		time.Sleep(time.Duration(c.rnd.Int64N(int64(3 * time.Second))))
	} else {
		time.Sleep(min(time.Duration(c.rnd.ExpFloat64()*float64(15*time.Minute)), 45*time.Minute))
	}
	c.cancel(id)
}

// place stores an order, with retries without limit, and reports whether it is stored.
// After an unknown outcome a customer without an Idempotency-Key can only check whether
// the order exists.
func (c *customer) place() (gocql.UUID, bool) {
	n := orders.NewOrder{
		Country: "Finland", Currency: "EUR", Invoice: c.name,
		Lines: []orders.NewLine{{SKU: "71053", Quantity: 1 + c.rnd.IntN(9), UnitPrice: "3.39"}},
	}
	opts := orders.WriteOptions{IdempotencyKey: c.key("create")}
	var lost *orders.UnavailableError
	for attempt := 0; ; attempt++ {
		got, err := c.service().Create(context.Background(), n, opts)
		switch {
		case err == nil:
			c.w.ledger.recordPlaced(got.Order)
			return got.Order.ID, true
		case !errors.As(err, &lost):
			c.w.t.Errorf("%s: Create() error = %v, want none or *UnavailableError", c.name, err)
			return gocql.UUID{}, false
		case lost.Unknown && opts.IdempotencyKey == "":
			return lost.OrderID, c.lookUp(lost.OrderID)
		case !lost.Unknown && opts.IdempotencyKey == "":
			c.w.ledger.recordRefused(lost.OrderID)
		}
		c.pause(attempt)
	}
}

// lookUp retries reading an order until it is known whether it exists.
func (c *customer) lookUp(id gocql.UUID) bool {
	for attempt := 0; ; attempt++ {
		o, err := c.service().Get(context.Background(), id)
		switch {
		case err == nil:
			c.w.ledger.recordPlaced(o)
			return true
		case errors.Is(err, orders.ErrNotFound):
			return false // it may still appear; no promise covers it
		}
		c.pause(attempt)
	}
}

// cancel cancels an order, one time in five with two concurrent requests.
func (c *customer) cancel(id gocql.UUID) {
	requests := 1
	if c.rnd.IntN(5) == 0 {
		requests = 2
	}
	answers := make([]cancelAnswer, requests)
	var wg sync.WaitGroup
	for i := range requests {
		r := &customer{w: c.w, name: fmt.Sprint(c.name, "/", i), rnd: rand.New(rand.NewPCG(c.rnd.Uint64(), 0))}
		wg.Go(func() { answers[i] = r.cancelOnce(id) })
	}
	wg.Wait()
	c.w.ledger.recordCancelled(id)
	won, lost := 0, 0
	for _, a := range answers {
		switch a {
		case cancelWon:
			won++
		case cancelLost:
			lost++
		}
	}
	if won > 1 || lost == requests {
		c.w.t.Errorf("%s: %d requests to cancel order %s: %d succeeded and %d conflicted, want one success",
			c.name, requests, id, won, lost)
	}
}

// cancelAnswer is the answer to a request to cancel.
type cancelAnswer int

const (
	cancelWon cancelAnswer = iota
	cancelLost
	// cancelDone: the order is cancelled, but after an unknown outcome and without an
	// Idempotency-Key the canceller is unknown.
	cancelDone
)

// cancelOnce sends one request, with retries until it has an answer.
func (c *customer) cancelOnce(id gocql.UUID) cancelAnswer {
	opts := orders.WriteOptions{IdempotencyKey: c.key("cancel")}
	unknown := false
	for attempt := 0; ; attempt++ {
		var lost *orders.UnavailableError
		var already *orders.ConflictError
		_, err := c.service().Cancel(context.Background(), id, orders.Cancellation{Reason: "simulated"}, opts)
		switch {
		case err == nil:
			return cancelWon
		case errors.As(err, &already) && unknown && opts.IdempotencyKey == "":
			return cancelDone
		case errors.As(err, &already):
			return cancelLost
		case !errors.As(err, &lost):
			c.w.t.Errorf("%s: Cancel() error = %v, want none, *ConflictError or *UnavailableError", c.name, err)
			return cancelDone
		}
		unknown = unknown || lost.Unknown
		c.pause(attempt)
	}
}

// key returns an Idempotency-Key; one request in four has none.
func (c *customer) key(operation string) string {
	if c.rnd.IntN(4) == 0 {
		return ""
	}
	return operation + "-" + c.name
}

// pause waits before the next attempt, up to some minutes.
func (c *customer) pause(attempt int) {
	d := min(2*time.Second<<min(attempt, 10), 5*time.Minute)
	time.Sleep(d/2 + time.Duration(c.rnd.Int64N(int64(d))))
}
