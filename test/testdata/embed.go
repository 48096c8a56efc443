// Package testdata is the data that tests and `outbox-dev run` share.
package testdata

import _ "embed"

// Orders is orders.jsonl.gz: real orders and cancellations by time, one JSON
// object per line, compressed with gzip. README.md describes the fields, the
// source and the licence (CC BY 4.0).
//
//go:embed orders.jsonl.gz
var Orders []byte

// OrdersLines is the number of lines in Orders.
const OrdersLines = 9878
