package dlq

import (
	"fmt"

	"github.com/gocql/gocql"
)

// VersionError says that a letter is not at the version that an Actor expected.
// Nothing was changed.
type VersionError struct {
	EventID    gocql.UUID
	Want, Have int64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("dead letter %s is at version %d, not %d: somebody changed it meanwhile", e.EventID, e.Have, e.Want)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *VersionError) Is(target error) bool { return target == ErrRefused }

// expects returns a *VersionError unless l is as the actor has seen it.
func (by *Actor) expects(l *Letter) error {
	if by.Version == 0 || by.Version == l.Version {
		return nil
	}
	return &VersionError{EventID: l.EventID, Want: by.Version, Have: l.Version}
}
