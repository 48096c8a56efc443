// Package cqlerr defines the errors of a CQL server.
package cqlerr

import "fmt"

// Code is an error code of the native protocol.
type Code int32

// The codes that the server sends.
const (
	Server         Code = 0x0000
	Protocol       Code = 0x000A
	BadCredentials Code = 0x0100
	Unavailable    Code = 0x1000
	Overloaded     Code = 0x1001
	WriteTimeout   Code = 0x1100
	ReadTimeout    Code = 0x1200
	Syntax         Code = 0x2000
	Unauthorized   Code = 0x2100
	Invalid        Code = 0x2200
	Config         Code = 0x2300
	AlreadyExists  Code = 0x2400
	Unprepared     Code = 0x2500
)

// Error is an error frame. The fields after Message are the extra body of the
// codes that have one.
type Error struct {
	Code    Code
	Message string

	Consistency        uint16 // unavailable, timeouts
	Received, BlockFor int32  // unavailable: alive, required
	WriteType          string // write timeout
	DataPresent        bool   // read timeout
	Keyspace, Table    string // already exists
	ID                 []byte // unprepared
}

func (e *Error) Error() string { return fmt.Sprintf("%04x %s", int32(e.Code), e.Message) }

// New returns an error with a formatted message.
func New(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Invalidf returns an error with code 0x2200.
func Invalidf(format string, args ...any) *Error { return New(Invalid, format, args...) }

// ErrPaxosTable answers a client that reads or writes a table NAME$paxos: a node answers
// so to clients without authentication, unless the request ends it.
var ErrPaxosTable = Invalidf("Role  doesn't exist.")

// Unsupported refuses a feature that ScyllaDB has and this server lacks. what completes
// "scyllafake does not support …".
func Unsupported(what string) *Error {
	return New(Invalid, "scyllafake does not support %s", what)
}
