package engine

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// OpKind says what a request is about to do.
type OpKind uint8

// The kinds of operation that faults can be injected into.
const (
	OpRead          OpKind = iota
	OpSerialRead           // SELECT at SERIAL or LOCAL_SERIAL
	OpWrite                // one mutation, or several statements on one partition
	OpUnloggedBatch        // several partitions
	OpLoggedBatch          // several partitions, logged
	OpCAS                  // conditional statement or batch
)

// Op is an operation as the hook sees it.
type Op struct {
	Kind        OpKind
	Keyspace    string
	Table       string // of the first mutation
	Consistency Consistency
	// Timeout is the statement's USING TIMEOUT, 0 without one. The engine does
	// not enforce it; a hook that delays may want to.
	Timeout time.Duration
	// Mutations are what will be written, log mutations not yet included; nil for reads and CAS.
	Mutations []*store.Mutation
}

// Verdict is what a hook decides. The zero value lets the operation pass.
type Verdict struct {
	// Delay is waited before anything is done.
	Delay time.Duration
	// Err is what the client gets; nil means the true answer.
	Err error
	// Fate is what becomes of a write whose client gets Err.
	Fate Fate
	// Later is when a write with fate ApplyLater is applied, counted from now.
	// For FateBatchlog each element is one replay.
	Later []time.Duration
	// Disconnect closes the connection instead of answering.
	Disconnect bool
	// DeadPage makes the first page of a paged read end before its first row, as
	// after query_tombstone_page_limit rows that are deleted or expired. The pages
	// behind it have all rows.
	DeadPage bool
}

// Fate is what becomes of a write.
type Fate uint8

// The fates.
const (
	// FateNormal: applied if Err is nil, not applied otherwise.
	FateNormal Fate = iota
	// FateApply: applied now, whatever the client is told.
	FateApply
	// FateLater: applied at each of Later with its original timestamps, through
	// the CDC path again each time, as a batchlog replay does.
	FateLater
	// FateDecided (CAS only): the round is decided but neither row nor log row
	// shows until the next conditional or SERIAL operation on the partition.
	FateDecided
)

// Hook decides the fate of operations. It must be safe for concurrent use.
type Hook interface {
	Before(ctx context.Context, op Op) Verdict
}
