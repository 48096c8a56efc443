package faults

import (
	"fmt"
	"slices"

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

var writeTypes = []string{Simple, Batch, UnloggedBatch, BatchLog, CAS}

// Failure is an error for the client. Zero fields get the values of a real node for the
// operation that is hit.
type Failure struct {
	Code    cqlerr.Code
	Message string
	// WriteType is for write timeouts and failures. A node reports a write to a table
	// with CDC as UNLOGGED_BATCH, since base and log are two mutations.
	WriteType string
	// Unlogged is for timeouts of writes that are not executed: a logged batch then has
	// the write type BATCH_LOG, since one with BATCH is executed later.
	Unlogged bool
	// Consistency is the level in the error; nil means the operation's, or that of the
	// write type: ONE for BATCH_LOG, SERIAL for CAS. A conditional statement is unavailable
	// at SERIAL: the node counts the replicas of its rounds first. For a write at ALL, the
	// read for an image is at QUORUM.
	Consistency *engine.Consistency
	// Received and BlockFor are how many replicas responded and how many were required;
	// for Unavailable, how many are alive and how many are required. BlockFor 0 means
	// one more than Received.
	Received, BlockFor int32
	// NumFailures is for read and write failures.
	NumFailures int32
	// DataPresent is for read timeouts and failures.
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

func (f *Failure) validate() error {
	if f.WriteType != "" && !slices.Contains(writeTypes, f.WriteType) {
		return fmt.Errorf("write type %q: must be one of %v", f.WriteType, writeTypes)
	}
	if f.Received < 0 || f.BlockFor < 0 || f.NumFailures < 0 {
		return fmt.Errorf("counts of replicas must not be negative")
	}
	if _, known := codeNames[f.Code]; !known {
		return fmt.Errorf("error code 0x%04x is not one that ScyllaDB sends", int32(f.Code))
	}
	if f.Code == cqlerr.Unprepared || f.Code == cqlerr.AlreadyExists {
		return fmt.Errorf("error code 0x%04x cannot be the answer to an operation", int32(f.Code))
	}
	return nil
}

// error returns the error for an operation. batchlog is the table of the batchlog.
func (f *Failure) error(op engine.Op, batchlog string) *cqlerr.Error {
	e := &cqlerr.Error{
		Code: f.Code, Message: f.Message, WriteType: f.WriteType,
		Received: f.Received, BlockFor: f.BlockFor, NumFailures: f.NumFailures, DataPresent: f.DataPresent,
	}
	if e.BlockFor == 0 {
		e.BlockFor = e.Received + 1
	}
	isWrite := f.Code == cqlerr.WriteTimeout || f.Code == cqlerr.WriteFailure
	if isWrite && e.WriteType == "" {
		if e.WriteType = writeTypeOf(op); f.Unlogged && e.WriteType == Batch {
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
	case f.Code == cqlerr.ReadTimeout && len(op.Mutations) > 0 && level == engine.All: // the read for an image
		level = engine.Quorum
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
	case cqlerr.WriteFailure, cqlerr.ReadFailure:
		return fmt.Sprintf("Operation failed for %s - received %d responses and %d failures from %d CL=%s.", table, e.Received, e.NumFailures, e.BlockFor, level)
	case cqlerr.Unavailable:
		return fmt.Sprintf("Cannot achieve consistency level for cl %s. Requires %d, alive %d", level, e.BlockFor, e.Received)
	}
	return fmt.Sprintf("injected fault %s", codeNames[e.Code])
}

// writeTypeOf returns the write type of an operation on a node.
func writeTypeOf(op engine.Op) string {
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

// codeNames are the errors that ScyllaDB sends, as the message of a fault names them.
var codeNames = map[cqlerr.Code]string{
	cqlerr.Server:         "server_error",
	cqlerr.Protocol:       "protocol_error",
	cqlerr.BadCredentials: "bad_credentials",
	cqlerr.Unavailable:    "unavailable",
	cqlerr.Overloaded:     "overloaded",
	cqlerr.Bootstrapping:  "bootstrapping",
	cqlerr.Truncate:       "truncate_error",
	cqlerr.WriteTimeout:   "write_timeout",
	cqlerr.ReadTimeout:    "read_timeout",
	cqlerr.ReadFailure:    "read_failure",
	cqlerr.WriteFailure:   "write_failure",
	cqlerr.Syntax:         "syntax_error",
	cqlerr.Unauthorized:   "unauthorized",
	cqlerr.Invalid:        "invalid",
	cqlerr.Config:         "config_error",
	cqlerr.AlreadyExists:  "already_exists",
	cqlerr.Unprepared:     "unprepared",
	cqlerr.RateLimit:      "rate_limit",
}
