package chains

import (
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// The list of error classes contains the classes of relays.
func TestClasses_AreListed(t *testing.T) {
	t.Parallel()
	for _, class := range []string{
		ClassBreakerOpen, ClassAttemptsUsed, ClassTooLarge, ClassTopicInvalid, ClassTopicRefused, ClassUndecodable, ClassRefused, ClassBehind, ClassInterrupted,
	} {
		if !slices.Contains(dlq.ErrorClasses, class) {
			t.Errorf("dlq.ErrorClasses has no %q", class)
		}
	}
}
