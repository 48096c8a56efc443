package db

import (
	"errors"

	"github.com/gocql/gocql"
)

// neverAgain prevents the driver from repeating a statement: a lightweight
// transaction that timed out may have been applied.
type neverAgain struct{}

// Attempt allows one attempt for each node.
func (neverAgain) Attempt(gocql.RetryableQuery) bool { return true }

// GetRetryType selects the next node only after errors that occur before anything
// is sent.
func (neverAgain) GetRetryType(err error) gocql.RetryType {
	switch {
	case errors.Is(err, gocql.ErrNoConnections), errors.Is(err, gocql.ErrNoConnectionsInPool), errors.Is(err, gocql.ErrNoPool),
		errors.Is(err, gocql.ErrHostDown), errors.Is(err, gocql.ErrNoStreams):
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}

// otherNode lets the driver send a statement that only reads to one more node.
type otherNode struct{}

// Attempt allows a second attempt.
func (otherNode) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= 2 }

// GetRetryType selects the next node unless the statement itself is wrong.
func (otherNode) GetRetryType(err error) gocql.RetryType {
	if Permanent(err) {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}
