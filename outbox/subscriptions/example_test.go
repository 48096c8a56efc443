package subscriptions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// A consumer that ends with SIGTERM, after the messages in progress.
func ExampleClient_Consume() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := &subscriptions.Client{URL: "http://127.0.0.1:8082"}
	err := c.Consume(ctx, "mail", func(ctx context.Context, d *subscriptions.Delivery) error {
		var order struct{ Total, Currency string }
		if err := json.Unmarshal(d.Data, &order); err != nil {
			return subscriptions.Reject(err) // it never becomes valid
		}
		if order.Total == "" {
			return subscriptions.RetryAfter(errors.New("no total yet"), time.Minute)
		}
		_, err := fmt.Println("order", d.AggregateID, "of", order.Total, order.Currency)
		return err // nil acknowledges
	}, subscriptions.ConsumeOptions{Concurrency: 20})
	if err != nil {
		log.Print(err)
	}
}
