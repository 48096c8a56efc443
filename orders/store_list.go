package orders

import (
	"context"
	"fmt"
)

const (
	listColumns  = "placed_at, id, version, status, invoice, country, currency, total, line_count, created_at, updated_at"
	insertListed = "INSERT INTO orders_by_customer (customer_id, month, " + listColumns + ")" +
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
	insertMonth  = "INSERT INTO customer_months (customer_id, month) VALUES (?, ?) USING TIMESTAMP ?"
	selectListed = "SELECT " + listColumns + " FROM orders_by_customer" +
		" WHERE customer_id = ? AND month = ? AND (placed_at, id) < (?, ?) LIMIT ?"
	selectMonths = "SELECT month FROM customer_months WHERE customer_id = ? AND month >= ? AND month <= ? LIMIT ?"
)

// listedValues returns the arguments of insertListed, for an order with a customer.
func listedValues(o *Order) []any {
	return []any{
		*o.CustomerID, monthPartition(o.PlacedAt), o.PlacedAt.UnixMilli(), o.ID, o.Version, string(o.Status), unsetIfEmpty(o.Invoice),
		o.Country, o.Currency, o.Total, len(o.Lines), o.CreatedAt.UnixMilli(), o.UpdatedAt.UnixMilli(), o.writeTime(),
	}
}

// months returns the months up to to in which the customer has orders, newest
// first.
func (s *store) months(ctx context.Context, customer string, from, to, limit int) (_ []int, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	iter := s.query(ctx, selectMonths, customer, from, to, limit).Idempotent(true).RetryPolicy(otherNode{}).Iter()
	var out []int
	for month := 0; iter.Scan(&month); {
		out = append(out, month)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("list the months of a customer: %w", err)
	}
	return out, nil
}

// listMonth returns orders of a customer in a month that follow start, newest
// first.
func (s *store) listMonth(ctx context.Context, customer string, month int, start cursor, limit int) (_ []Summary, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	iter := s.query(ctx, selectListed, customer, month, start.at.UnixMilli(), start.id, limit).
		Idempotent(true).RetryPolicy(otherNode{}).Iter()
	var out []Summary
	for {
		var o Summary // a new one: scanning null leaves a string unchanged
		if !iter.Scan(&o.PlacedAt, &o.ID, &o.Version, &o.Status, &o.Invoice, &o.Country, &o.Currency, &o.Total, &o.Lines, &o.CreatedAt, &o.UpdatedAt) {
			break
		}
		out = append(out, o)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("list the orders of a customer: %w", err)
	}
	return out, nil
}
