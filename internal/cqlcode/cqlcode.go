// Package cqlcode reads the protocol's error code from errors of gocql.
package cqlcode

import "errors"

// None is the code of errors that no server sent.
const None = -1

// RateLimit is ScyllaDB's own code for a rate limit, as gocql negotiates it.
const RateLimit = 0xF000

// Of returns the code of the server's error in err's chain, or None if the
// error is the driver's own: no connection, no answer in time.
//
// The driver declares an interface RequestError for this, with a method Code;
// its errors have a field of that name and the method GetCode, so none of them
// is a RequestError.
func Of(err error) int {
	if e, ok := errors.AsType[interface {
		error
		GetCode() int
	}](err); ok {
		return e.GetCode()
	}
	return None
}
