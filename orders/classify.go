package orders

import (
	"errors"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// fate is what a failed statement may have done.
type fate = cqlcode.Fate

const (
	fateDone    = cqlcode.Done
	fateUnknown = cqlcode.Unknown
	fateRefused = cqlcode.Refused
	fateInvalid = cqlcode.Invalid
)

// fateOf is cqlcode.FateOf, and knows that an event which cannot be stored
// reached no database.
func fateOf(err error) fate {
	if bad, ok := errors.AsType[*outbox.InvalidEventError](err); ok && bad != nil {
		return fateInvalid
	}
	if errors.Is(err, errBreakerOpen) {
		return fateRefused
	}
	return cqlcode.FateOf(err)
}

type (
	neverAgain = cqlcode.NeverAgain
	otherNode  = cqlcode.OtherNode
)
