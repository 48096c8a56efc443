package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox/client"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// serve starts the API of orders and messages over an embedded database.
func serve() (url string, stop func()) {
	node, err := scyllafake.Start(scyllatest.Config())
	must(err)
	admin, err := scyllatest.Cluster(node, "").CreateSession()
	must(err)
	must(schema.Migrate(context.Background(), admin, schema.Options{Components: schema.Components()}))
	admin.Close()
	session, err := scyllatest.Cluster(node, schema.DefaultKeyspace).CreateSession()
	must(err)
	service, err := orders.New(session, orders.Config{})
	must(err)
	intake, err := messages.NewService(session, messages.Config{})
	must(err)
	server, err := orders.NewServer(service, orders.ServerConfig{Routes: []func(huma.API){messages.NewAPI(intake).Register}})
	must(err)
	api := httptest.NewServer(server.Handler())
	return api.URL, func() {
		api.Close()
		session.Close()
		must(node.Close())
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func Example() {
	url, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c := &client.Client{URL: url}
	customer := "17850"
	order, err := c.Create(ctx, client.NewOrder{
		CustomerID: &customer, Country: "Finland", Currency: "EUR",
		Lines: []client.Line{{SKU: "71053", Description: "Lantern", Quantity: 2, UnitPrice: "3.39"}},
	})
	must(err)
	fmt.Println(order.Status, order.Version, order.Total)

	// Change it, unless it was changed concurrently.
	order, err = c.Update(ctx, order.ID, order.Version, client.Update{Lines: []client.Line{{SKU: "71053", Quantity: 3, UnitPrice: "3.39"}}})
	must(err)
	fmt.Println(order.Status, order.Version, order.Total)

	order, err = c.Confirm(ctx, order.ID)
	must(err)
	order, err = c.Ship(ctx, order.ID, client.Shipment{Carrier: "Posti", Tracking: "JJFI1"})
	must(err)
	fmt.Println(order.Status, order.Version)

	page, err := c.List(ctx, client.ListQuery{CustomerID: customer})
	must(err)
	fmt.Println(len(page.Orders), page.Orders[0].Status)
	// Output:
	// placed 1 6.78
	// placed 2 10.17
	// shipped 4
	// 1 shipped
}

func ExampleProblem() {
	url, stop := serve()
	defer stop()
	ctx := context.Background()
	c := &client.Client{URL: url}
	order, err := c.Create(ctx, client.NewOrder{Country: "EIRE", Currency: "EUR", Lines: []client.Line{{SKU: "a", Quantity: 1, UnitPrice: "1"}}})
	must(err)

	_, err = c.Ship(ctx, order.ID, client.Shipment{})
	var p *client.Problem
	if errors.As(err, &p) {
		fmt.Println(p.Type == client.ProblemUnconfirmed, p.CurrentStatus)
	}
	country := "Finland"
	_, err = c.Update(ctx, order.ID, 7, client.Update{Country: &country})
	if errors.As(err, &p) {
		fmt.Println(p.Type == client.ProblemStale)
	}
	// Output:
	// true placed
	// true
}

// A caller that may crash before the response stores the key, and retries with
// it.
func ExampleWithKey() {
	url, stop := serve()
	defer stop()
	ctx := context.Background()
	order := client.NewOrder{Country: "EIRE", Currency: "EUR", Lines: []client.Line{{SKU: "a", Quantity: 1, UnitPrice: "1"}}}

	first, err := (&client.Client{URL: url}).Create(ctx, order, client.WithKey("cart-4711"))
	must(err)
	again, err := (&client.Client{URL: url}).Create(ctx, order, client.WithKey("cart-4711"))
	must(err)
	fmt.Println(first.ID == again.ID)
	// Output:
	// true
}

func ExampleClient_PostMessage() {
	url, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c := &client.Client{URL: url}
	m, err := c.PostMessage(ctx, client.NewMessage{
		Topic: "reminders", Key: "customer-42", Payload: json.RawMessage(`{"text":"hello"}`), Delay: time.Hour,
	}, client.WithKey("r-42"))
	must(err)
	fmt.Println(m.State, m.DeliverAt.Sub(m.CreatedAt))

	page, err := c.ScheduledMessages(ctx, client.ScheduledQuery{Topic: "reminders"})
	must(err)
	fmt.Println(len(page.Messages), page.Messages[0].Key)

	// It is not wanted any more.
	must(c.CancelMessage(ctx, m.ID))
	look, err := c.GetMessage(ctx, m.ID)
	must(err)
	fmt.Println(look.State)
	// Output:
	// scheduled 1h0m0s
	// 1 customer-42
	// cancelled
}

// A waiting message is read and released early.
func ExampleClient_DeliverMessageNow() {
	url, stop := serve()
	defer stop()
	ctx := context.Background()
	c := &client.Client{URL: url}
	hello := "hello"
	m, err := c.PostMessage(ctx, client.NewMessage{Topic: "reminders", PayloadText: &hello, Delay: time.Hour})
	must(err)

	carries, err := c.MessageContent(ctx, m.ID)
	must(err)
	fmt.Println(carries.ContentType, string(carries.Payload()))
	released, err := c.DeliverMessageNow(ctx, m.ID)
	must(err)
	fmt.Println(released.State, released.DeliverAt.Before(*m.DeliverAt))

	must(c.CancelMessage(ctx, m.ID))
	_, err = c.DeliverMessageNow(ctx, m.ID)
	var p *client.Problem
	fmt.Println(errors.As(err, &p) && p.Type == client.ProblemNotWaiting, p.State)
	// Output:
	// text/plain; charset=utf-8 hello
	// scheduled true
	// true cancelled
}

// Each message of a batch is stored separately. Transient problems were
// retried; the remaining ones are refusals.
func ExampleClient_PostMessages() {
	url, stop := serve()
	defer stop()
	c := &client.Client{URL: url}
	hello := "hello"
	results, err := c.PostMessages(context.Background(), []client.NewMessage{{Topic: "reminders", PayloadText: &hello}, {Topic: "no topic"}})
	must(err)
	for _, r := range results {
		if r.Problem != nil {
			fmt.Println(r.Index, r.Problem.Errors[0].Location, r.Problem.Errors[0].Message)
			continue
		}
		err := c.CancelMessage(context.Background(), r.Message.ID)
		var p *client.Problem
		fmt.Println(r.Index, r.Message.State, errors.As(err, &p) && p.Type == client.ProblemTooLate)
	}
	// Output:
	// 0 queued true
	// 1 body.topic must be letters, digits and . _ -, at most 249
}
