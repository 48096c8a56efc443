package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	intake "github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/messages"
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
	accepted, err := intake.NewService(session, intake.Config{})
	must(err)
	ofOrders, err := service.HTTP()
	must(err)
	mux := http.NewServeMux()
	for _, api := range []apiserver.API{ofOrders, intake.NewAPI(accepted).HTTP()} {
		server, err := apiserver.New(api, apiserver.Config{})
		must(err)
		mux.Handle(api.Path, server.Handler())
		mux.Handle(api.Path+"/", server.Handler())
	}
	api := httptest.NewServer(mux)
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

// A caller that may crash before the response stores the key, and retries with
// it.
func ExampleWithKey() {
	url, stop := serve()
	defer stop()
	ctx := context.Background()
	hello := "hello"
	m := messages.NewMessage{Topic: "reminders", PayloadText: &hello}

	first, err := (&messages.Client{URL: url}).Post(ctx, m, api.WithKey("cart-4711"))
	must(err)
	again, err := (&messages.Client{URL: url}).Post(ctx, m, api.WithKey("cart-4711"))
	must(err)
	fmt.Println(first.ID == again.ID)
	// Output:
	// true
}

func ExampleProblem() {
	url, stop := serve()
	defer stop()
	c := &messages.Client{URL: url}
	_, err := c.Get(context.Background(), "01990000-0000-7000-8000-000000000000")
	fmt.Println(errors.Is(err, api.ErrNotFound))
	_, err = c.Post(context.Background(), messages.NewMessage{Topic: "no topic"})
	var p *api.Problem
	if errors.As(err, &p) {
		fmt.Println(p.Status, p.Errors[0].Location)
	}
	// Output:
	// true
	// 422 body.topic
}

func ExampleClient_Post() {
	url, stop := serve()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c := &messages.Client{URL: url}
	m, err := c.Post(ctx, messages.NewMessage{
		Topic: "reminders", Key: "customer-42", Payload: json.RawMessage(`{"text":"hello"}`), Delay: time.Hour,
	}, api.WithKey("r-42"))
	must(err)
	fmt.Println(m.State, m.DeliverAt.Sub(m.CreatedAt))

	page, err := c.Scheduled(ctx, messages.Query{Topic: "reminders"})
	must(err)
	fmt.Println(len(page.Messages), page.Messages[0].Key)

	// It is not wanted any more.
	must(c.Cancel(ctx, m.ID))
	look, err := c.Get(ctx, m.ID)
	must(err)
	fmt.Println(look.State)
	// Output:
	// scheduled 1h0m0s
	// 1 customer-42
	// cancelled
}

// A waiting message is read and released early.
func ExampleClient_DeliverNow() {
	url, stop := serve()
	defer stop()
	ctx := context.Background()
	c := &messages.Client{URL: url}
	hello := "hello"
	m, err := c.Post(ctx, messages.NewMessage{Topic: "reminders", PayloadText: &hello, Delay: time.Hour})
	must(err)

	carries, err := c.Content(ctx, m.ID)
	must(err)
	fmt.Println(carries.ContentType, string(carries.Payload()))
	released, err := c.DeliverNow(ctx, m.ID)
	must(err)
	fmt.Println(released.State, released.DeliverAt.Before(*m.DeliverAt))

	must(c.Cancel(ctx, m.ID))
	_, err = c.DeliverNow(ctx, m.ID)
	fmt.Println(errors.Is(err, messages.ErrNotWaiting), messages.StateOf(err))
	// Output:
	// text/plain; charset=utf-8 hello
	// scheduled true
	// true cancelled
}

// Each message of a batch is stored separately. Transient problems were
// retried; the remaining ones are refusals.
func ExampleClient_PostBatch() {
	url, stop := serve()
	defer stop()
	c := &messages.Client{URL: url}
	hello := "hello"
	results, err := c.PostBatch(context.Background(), []messages.NewMessage{{Topic: "reminders", PayloadText: &hello}, {Topic: "no topic"}})
	must(err)
	for _, r := range results {
		if r.Problem != nil {
			fmt.Println(r.Index, r.Problem.Errors[0].Location, r.Problem.Errors[0].Message)
			continue
		}
		err := c.Cancel(context.Background(), r.Message.ID)
		fmt.Println(r.Index, r.Message.State, errors.Is(err, messages.ErrTooLate))
	}
	// Output:
	// 0 queued true
	// 1 body.topic must be letters, digits and . _ -, at most 249
}
