// Command consumers contains three consumers of the events of orders, each with a
// subscription of its own: inventory, email and analytics. consumers.py is the same in
// Python.
//
//	go run ./examples/consumers -consumer inventory -subscription inventory -state stock.json
//
// Delivery is at least once. Each consumer stores its effect together with the numbers of
// the applied events of the order, and acknowledges afterwards: an event that is delivered
// again has no effect. The events of an order are in several topics, so a cancellation may
// come before its order; the effects do not depend on that.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// order is the part of an event that the consumers use.
type order struct {
	Country  string `json:"country"`
	Currency string `json:"currency"`
	Total    string `json:"total"`
	Lines    []struct {
		SKU      string `json:"sku"`
		Quantity int    `json:"quantity"`
	} `json:"lines"`
}

// state is what a consumer stores.
type state struct {
	// Applied are the sequences of the applied events of each order.
	Applied map[string][]int64 `json:"applied"`
	// Numbers are units sold by article (inventory), or orders by country (analytics).
	Numbers map[string]int `json:"numbers"`
	// Mails are the texts by event id (email).
	Mails map[string]string `json:"mails"`
}

// consumers are the effects of an event.
var consumers = map[string]func(s *state, d *subscriptions.Delivery, o *order){
	"inventory": func(s *state, d *subscriptions.Delivery, o *order) {
		for _, l := range o.Lines {
			switch d.EventType {
			case "OrderCreated":
				s.Numbers[l.SKU] += l.Quantity
			case "OrderCancelled":
				s.Numbers[l.SKU] -= l.Quantity
			}
		}
	},
	"email": func(s *state, d *subscriptions.Delivery, o *order) {
		switch d.EventType {
		case "OrderCreated":
			s.Mails[d.EventID] = fmt.Sprintf("Your order %s of %s %s was received.", d.AggregateID, o.Total, o.Currency)
		case "OrderCancelled":
			s.Mails[d.EventID] = fmt.Sprintf("Your order %s was cancelled.", d.AggregateID)
		}
	},
	"analytics": func(s *state, d *subscriptions.Delivery, o *order) {
		switch d.EventType {
		case "OrderCreated":
			s.Numbers[o.Country]++
		case "OrderCancelled":
			s.Numbers[o.Country]--
		}
	},
}

func main() {
	api := flag.String("api", "http://127.0.0.1:8082", "URL of the subscriptions API")
	kind := flag.String("consumer", "inventory", "inventory, email or analytics")
	subscription := flag.String("subscription", "", "name of the subscription; default: that of the consumer")
	file := flag.String("state", "state.json", "file with the effects")
	untilEmpty := flag.Bool("until-empty", false, "exit when no message has come for 2 s")
	flag.Parse()
	apply := consumers[*kind]
	if apply == nil {
		log.Fatalf("no consumer %q: use inventory, email or analytics", *kind)
	}
	if *subscription == "" {
		*subscription = *kind
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &subscriptions.Client{URL: *api, Token: os.Getenv("OUTBOX_API_TOKEN")}
	if err := run(ctx, c, *subscription, *file, apply, *untilEmpty); err != nil {
		log.Fatal(err)
	}
}

// run consumes until ctx ends or, with untilEmpty, there are no messages.
func run(ctx context.Context, c *subscriptions.Client, subscription, file string, apply func(*state, *subscriptions.Delivery, *order), untilEmpty bool) error {
	s, err := load(file)
	if err != nil {
		return err
	}
	wait := 20 * time.Second
	if untilEmpty {
		wait = 2 * time.Second
	}
	for ctx.Err() == nil {
		messages, err := c.Receive(ctx, subscription, subscriptions.ReceiveOptions{Max: 100, Wait: wait})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Print(err)
			time.Sleep(time.Second)
			continue
		case len(messages) == 0 && untilEmpty:
			return nil
		case len(messages) == 0:
			continue
		}
		receipts := make([]string, len(messages))
		for i := range messages {
			d := &messages[i]
			receipts[i] = d.Receipt
			if slices.Contains(s.Applied[d.AggregateID], d.Sequence) {
				continue // it was delivered before
			}
			var o order
			if err := json.Unmarshal(d.Payload(), &o); err != nil {
				return fmt.Errorf("event %s: %w", d.EventID, err)
			}
			apply(s, d, &o)
			s.Applied[d.AggregateID] = append(s.Applied[d.AggregateID], d.Sequence)
		}
		if err := save(file, s); err != nil {
			return err
		}
		if _, err := c.Ack(context.WithoutCancel(ctx), subscription, receipts...); err != nil {
			log.Print(err) // these messages come again
		}
	}
	return nil
}

func load(file string) (*state, error) {
	s := &state{Applied: map[string][]int64{}, Numbers: map[string]int{}, Mails: map[string]string{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	return s, err
}

// save replaces the file, so that it has either the old or the new state after a crash.
func save(file string, s *state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
