package faults

import (
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Write types of timeouts and failures.
const (
	Simple        = "SIMPLE"
	Batch         = "BATCH"
	UnloggedBatch = "UNLOGGED_BATCH"
	BatchLog      = "BATCH_LOG"
	CAS           = "CAS"
)

// Failure is an error for the client. Zero fields get the values of a real node for the
// operation that is hit.
type Failure struct {
	Code    cqlerr.Code
	Message string
	// WriteType is for write timeouts. A node reports a write to a table
	// with CDC as UNLOGGED_BATCH, since base and log are two mutations.
	WriteType string
	// Unlogged is for timeouts of writes that are not executed: a logged batch then has
	// the write type BATCH_LOG, since one with BATCH is executed later.
	Unlogged bool
	// Consistency is the level in the error; nil means the operation's, or that of the
	// write type: ONE for BATCH_LOG, SERIAL for CAS. A conditional statement is unavailable
	// at SERIAL: the node counts the replicas of its rounds first.
	Consistency *engine.Consistency
	// Received and BlockFor are how many replicas responded and how many were required;
	// for Unavailable, how many are alive and how many are required. BlockFor 0 means
	// one more than Received.
	Received, BlockFor int32
	// DataPresent is for read timeouts.
	DataPresent bool
}

// WriteTimeout returns a write timeout with a write type ("" for the operation's own)
// and the numbers of received and required responses.
func WriteTimeout(writeType string, received, blockFor int32) *Failure {
	return &Failure{Code: cqlerr.WriteTimeout, WriteType: writeType, Received: received, BlockFor: blockFor}
}

// ReadTimeout returns a read timeout.
func ReadTimeout(received, blockFor int32) *Failure {
	return &Failure{Code: cqlerr.ReadTimeout, Received: received, BlockFor: blockFor, DataPresent: true}
}

// Unavailable returns the error for a level that cannot be reached.
func Unavailable(alive, required int32) *Failure {
	return &Failure{Code: cqlerr.Unavailable, Received: alive, BlockFor: required}
}

// Refuse returns an error without an extra body, or with an empty one.
func Refuse(code cqlerr.Code, message string) *Failure {
	return &Failure{Code: code, Message: message}
}

// error returns the error for an operation. batchlog is the table of the batchlog.
func (f *Failure) error(op engine.Op, batchlog string) *cqlerr.Error {
	e := &cqlerr.Error{
		Code: f.Code, Message: f.Message, WriteType: f.WriteType,
		Received: f.Received, BlockFor: f.BlockFor, DataPresent: f.DataPresent,
	}
	if e.BlockFor == 0 {
		e.BlockFor = e.Received + 1
	}
	isWrite := f.Code == cqlerr.WriteTimeout
	if isWrite && e.WriteType == "" {
		if e.WriteType = writeType(op); f.Unlogged && e.WriteType == Batch {
			e.WriteType = BatchLog
		}
	}
	level := op.Consistency
	keyspace, table := op.Keyspace, op.Table
	switch {
	case f.Consistency != nil:
		level = *f.Consistency
	case isWrite && e.WriteType == BatchLog:
		level, keyspace, table = engine.One, "system", batchlog
	case isWrite && e.WriteType == CAS, f.Code == cqlerr.Unavailable && op.Kind == engine.OpCAS:
		level = engine.Serial
	}
	e.Consistency = uint16(level)
	if e.Message == "" {
		e.Message = message(e, keyspace+"."+table, level.String())
	}
	return e
}

// message returns ScyllaDB's text of an error (exceptions/exceptions.cc).
func message(e *cqlerr.Error, table, level string) string {
	switch e.Code {
	case cqlerr.WriteTimeout, cqlerr.ReadTimeout:
		return fmt.Sprintf("Operation timed out for %s - received only %d responses from %d CL=%s.", table, e.Received, e.BlockFor, level)
	case cqlerr.Unavailable:
		return fmt.Sprintf("Cannot achieve consistency level for cl %s. Requires %d, alive %d", level, e.BlockFor, e.Received)
	}
	return fmt.Sprintf("injected fault %04x", int32(e.Code))
}

// writeType returns the write type of an operation on a node.
func writeType(op engine.Op) string {
	switch op.Kind {
	case engine.OpCAS:
		return CAS
	case engine.OpLoggedBatch:
		return Batch
	case engine.OpUnloggedBatch:
		return UnloggedBatch
	}
	for _, m := range op.Mutations {
		if m.Table.CDC != nil && m.Table.CDC.Enabled {
			return UnloggedBatch
		}
	}
	return Simple
}
