package doctor

import (
	"strings"
	"testing"
)

func TestDoctor_ReportsTheRateThatTheSettingsCarry(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ conf, want string }{
		{"", "(1000000) carries 6666 events/s sustained with the confidence window of 2m0s, some 60 MB"},
		{"relay: {max_remembered: 3000000, confidence_window: 4m}", "(3000000) carries 10000 events/s sustained with the confidence window of 4m0s, some 180 MB; for more set it to 1.25 × events per second × 240"},
		{"relay: {tail_max_interval: off}", "no limit applies"},
	} {
		c, err := configOf(t, x.conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := checkRate(c); !f.OK || !strings.Contains(f.Detail, x.want) {
			t.Errorf("%q: %+v, want %q", x.conf, f, x.want)
		}
	}
}
