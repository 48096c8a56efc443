package doctor

import (
	"strings"
	"testing"
)

func TestDoctor_ReportsTheRateThatTheSettingsCarry(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ conf, want string }{
		{"", "(134 MB) carries 24855 events/s sustained with the confidence window of 2m0s; for more set it to 5400 bytes per event and second"},
		{"relay: {dedup_memory_bytes: 108000000, confidence_window: 4m}", "(108 MB) carries 10000 events/s sustained with the confidence window of 4m0s; for more set it to 10800 bytes per event and second"},
		{"relay: {shards: 16}", "carries 24855 events/s per process sustained"},
		{"relay: {tail_max_interval: off}", "no limit applies"},
	} {
		c, err := parseConfig(t, x.conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := checkRate(c); !f.OK || !strings.Contains(f.Detail, x.want) {
			t.Errorf("%q: %+v, want %q", x.conf, f, x.want)
		}
	}
}
