package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/verify"
)

// doctor reports missing events, and a table that is not verified to its end.
func TestDoctor_Verification(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		state verify.PassState
		ok    bool
		says  string
	}{
		"missing":       {verify.PassState{Began: now, LastPass: now, Missing: 3}, false, "3 events"},
		"good":          {verify.PassState{Began: now, LastPass: now, Verified: now}, true, "is missing"},
		"first pass":    {verify.PassState{Began: now, Ranges: 256, Done: 7}, true, "7 of 256"},
		"never ended":   {verify.PassState{Began: now.Add(-3 * verifySlow / 2)}, false, "no full pass"},
		"no longer end": {verify.PassState{Began: now, LastPass: now.Add(-3 * verifySlow / 2)}, false, "no full pass"},
	} {
		if f := passFinding("check", &tt.state, now); f.OK != tt.ok || !strings.Contains(f.Detail, tt.says) || f.OK != (f.Fix == "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
