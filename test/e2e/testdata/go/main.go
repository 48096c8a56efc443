// Command client runs the story of the generated clients with those that oapi-codegen makes:
//
//	client MESSAGES SUBSCRIPTIONS ADMIN ORDERS TOKEN NAME
//
// It prints the ids of the message that it acknowledged and of the dead letter.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"example.com/client/admin"
	"example.com/client/messages"
	"example.com/client/orders"
	"example.com/client/subscriptions"
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[5], os.Args[6])
	if err == nil {
		err = order(ctx, os.Args[4], os.Args[6])
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, messagesURL, subscriptionsURL, adminURL, token, name string) error {
	sender, err := messages.NewClientWithResponses(messagesURL)
	if err != nil {
		return err
	}
	queues, err := subscriptions.NewClientWithResponses(subscriptionsURL)
	if err != nil {
		return err
	}
	operator, err := admin.NewClientWithResponses(adminURL, admin.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	filter, start := fmt.Sprintf("key == %q", name), "earliest"
	made, err := queues.PutSubscriptionWithResponse(ctx, name, nil, subscriptions.PutSubscriptionJSONRequestBody{Topics: []string{"reminders"}, Filter: &filter, Start: &start})
	if err != nil || made.JSON201 == nil {
		return fmt.Errorf("create the subscription: %v %s", err, made.Body)
	}

	// send sends a message twice with one key, and receives it.
	send := func(n int) (id, receipt string, err error) {
		key := fmt.Sprintf("%s-%d", name, n)
		body := messages.PostMessageJSONRequestBody{Topic: "reminders", Key: &name, Payload: map[string]any{"n": n}}
		for range 2 {
			sent, err := sender.PostMessageWithResponse(ctx, &messages.PostMessageParams{IdempotencyKey: &key}, body)
			switch {
			case err != nil || sent.JSON202 == nil:
				return "", "", fmt.Errorf("send: %v %s", err, sent.Body)
			case id != "" && id != sent.JSON202.Id.String():
				return "", "", fmt.Errorf("one key, messages %s and %s", id, sent.JSON202.Id)
			}
			id = sent.JSON202.Id.String()
		}
		one, wait := int64(1), "20s"
		for {
			got, err := queues.ReceiveWithResponse(ctx, name, subscriptions.ReceiveJSONRequestBody{Max: &one, Wait: &wait})
			if err != nil || got.JSON200 == nil {
				return "", "", fmt.Errorf("receive: %v %s", err, got.Body)
			}
			for _, m := range got.JSON200.Messages {
				if data, ok := m.Data.(map[string]any); !ok || data["n"] != float64(n) || m.EventId == nil || *m.EventId != id || m.Receipt == nil {
					return "", "", fmt.Errorf("sent message %s, number %d; received %+v", id, n, m)
				}
				return id, *m.Receipt, nil
			}
		}
	}
	first, receipt, err := send(1)
	if err != nil {
		return err
	}
	acked, err := queues.AckWithResponse(ctx, name, subscriptions.AckJSONRequestBody{Receipts: []string{receipt}})
	if err != nil || acked.JSON200 == nil || acked.JSON200.Results[0].Code != "ok" {
		return fmt.Errorf("acknowledge: %v %s", err, acked.Body)
	}
	_, receipt, err = send(2)
	if err != nil {
		return err
	}
	reason := "a test"
	rejected, err := queues.RejectWithResponse(ctx, name, subscriptions.RejectJSONRequestBody{Receipts: &[]string{receipt}, Reason: &reason})
	if err != nil || rejected.JSON200 == nil || rejected.JSON200.Results[0].Code != "ok" {
		return fmt.Errorf("reject: %v %s", err, rejected.Body)
	}
	table := "subscription." + name
	list, err := operator.ListDeadLettersWithResponse(ctx, &admin.ListDeadLettersParams{Table: &table})
	if err != nil || list.JSON200 == nil {
		return fmt.Errorf("list the dead letters: %v %s", err, list.Body)
	}
	for _, l := range list.JSON200.DeadLetters {
		why := "INC-311%20never%20needed"
		resolved, err := operator.ResolveDeadLetterWithResponse(ctx, l.EventId, &admin.ResolveDeadLetterParams{AuditReason: &why}, admin.ResolveDeadLetterJSONRequestBody{})
		if err != nil || resolved.JSON200 == nil || resolved.JSON200.DeadLetter.Status != "resolved" {
			return fmt.Errorf("resolve the dead letter: %v %s", err, resolved.Body)
		}
	}
	again, err := queues.AckWithResponse(ctx, name, subscriptions.AckJSONRequestBody{Receipts: []string{"no receipt"}})
	if err != nil || again.ApplicationproblemJSON422 == nil || *again.ApplicationproblemJSON422.Type != "urn:scylla-outbox:problem:invalid-receipt" {
		return fmt.Errorf("a receipt that is none: %v %s", err, again.Body)
	}
	fmt.Println(first)
	for _, l := range list.JSON200.DeadLetters {
		fmt.Println(l.EventId)
	}
	return nil
}

// order makes an order twice with one key, changes it from the version that it has, and finds it in
// the list of the customer. A change from the former version is refused.
func order(ctx context.Context, url, customer string) error {
	shop, err := orders.NewClientWithResponses(url)
	if err != nil {
		return err
	}
	var price orders.NewLine_UnitPrice // a text or a number
	if err := price.FromNewLineUnitPrice0("1.50"); err != nil {
		return err
	}
	key := "order-" + customer
	var made *orders.CreateOrderResponse
	for range 2 {
		again, err := shop.CreateOrderWithResponse(ctx, &orders.CreateOrderParams{IdempotencyKey: &key}, orders.CreateOrderJSONRequestBody{
			Country: "Finland", Currency: "EUR", CustomerId: &customer, Lines: []orders.NewLine{{Sku: "s-1", Quantity: 2, UnitPrice: price}},
		})
		switch {
		case err != nil || again.JSON201 == nil:
			return fmt.Errorf("make an order: %v %s", err, again.Body)
		case made != nil && again.JSON201.Id != made.JSON201.Id:
			return fmt.Errorf("one key, orders %s and %s", made.JSON201.Id, again.JSON201.Id)
		}
		made = again
	}
	id, tag := made.JSON201.Id, made.HTTPResponse.Header.Get("ETag")
	reason := "changed my mind"
	for _, status := range []int{http.StatusOK, http.StatusPreconditionFailed} {
		cancelled, err := shop.CancelOrderWithResponse(ctx, id, &orders.CancelOrderParams{IfMatch: &tag}, orders.CancelOrderJSONRequestBody{Reason: &reason})
		if err != nil || cancelled.StatusCode() != status {
			return fmt.Errorf("cancel an order: want %d: %v %s", status, err, cancelled.Body)
		}
	}
	list, err := shop.ListOrdersWithResponse(ctx, &orders.ListOrdersParams{CustomerId: customer})
	if err != nil || list.JSON200 == nil || len(list.JSON200.Orders) != 1 || list.JSON200.Orders[0].Id != id || list.JSON200.Orders[0].Status != "cancelled" {
		return fmt.Errorf("list the orders: %v %s", err, list.Body)
	}
	return nil
}
