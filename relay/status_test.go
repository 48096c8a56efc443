package relay

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Readiness in an outage of the database: the tail says so first, with the cause.
func TestStatus_TheTailCannotRead(t *testing.T) {
	t.Parallel()
	cfg := Config{StallAfter: 30 * time.Second, IdleDelay: 10 * time.Second, BusyDelay: 5 * time.Second, ConfidenceWindow: 2 * time.Minute}
	now := time.Now()
	for _, tt := range []struct {
		name   string
		silent time.Duration // since the tail read and a window was read
		err    error
		want   string
	}{
		{"it reads", 0, nil, ""},
		{"one reading failed", 2 * time.Second, errors.New("timeout"), ""},
		{"none works", 30 * time.Second, errors.New("no hosts available"), "no hosts available"},
		{"nothing says why", 45 * time.Second, nil, "no window"},
	} {
		s := Status{Reading: true, LastWindow: now.Add(-tt.silent), Tail: TailStatus{On: true, LastRead: now.Add(-tt.silent), Err: tt.err}}
		s.Breaker.State = BreakerClosed
		got := strings.Join(s.problems(&cfg, now.Add(-time.Hour), now), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q in it", tt.name, got, tt.want)
		}
	}
}
