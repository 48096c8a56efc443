package engine

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// OpKind is the kind of an operation.
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

// Op is an operation as the hook receives it.
type Op struct {
	Kind        OpKind
	Keyspace    string
	Table       string // of the first mutation
	Consistency Consistency
	// Mutations are the mutations to write, without log mutations; nil for reads and
	// CAS.
	Mutations []*store.Mutation
}

// Verdict is the decision of a hook. The zero value lets the operation pass.
type Verdict struct {
	// Delay is the pause before the operation.
	Delay time.Duration
	// Err is the error for the client; nil means the true response.
	Err error
	// Fate is the fate of a write whose client gets Err.
	Fate Fate
	// Later contains the delays after which a write with fate FateLater is applied.
	// Each element is one replay.
	Later []time.Duration
	// Disconnect closes the connection instead of responding.
	Disconnect bool
	// DeadPage ends the first page of a paged read before its first row, as
	// query_tombstone_page_limit does after many deleted or expired rows. The pages
	// after it have all rows.
	DeadPage bool
}

// Fate is the fate of a write.
type Fate uint8

// Fates of a write.
const (
	// FateNormal: applied if Err is nil, not applied otherwise.
	FateNormal Fate = iota
	// FateApply: applied now, whatever the response is.
	FateApply
	// FateLater: applied after each of Later with its original timestamps, as a batchlog
	// replay does: with the same log rows each time, or, in releases before 2025.4 and
	// for conditional writes, through the CDC path again each time.
	FateLater
	// FateDecided (CAS only): the round is decided but neither row nor log row is
	// visible until the next conditional or SERIAL operation on the partition.
	FateDecided
)

// Hook decides the fate of operations. It must be safe for concurrent use.
type Hook interface {
	Before(ctx context.Context, op Op) Verdict
}
