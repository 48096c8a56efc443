package orders

import (
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
)

// fate is the possible outcome of a failed statement.
type fate = cqlcode.Fate

const (
	fateDone    = cqlcode.Done
	fateUnknown = cqlcode.Unknown
	fateRefused = cqlcode.Refused
	fateInvalid = cqlcode.Invalid
)

func classifyFate(err error) fate { return guard.ClassifyFate(err) }

type (
	neverAgain = cqlcode.NeverAgain
	otherNode  = cqlcode.OtherNode
)
