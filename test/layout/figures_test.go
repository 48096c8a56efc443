package layout

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each figure of docs/promises.md that is a constant of the code is that of the code.
func TestPromises_FiguresAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	promises := read(t, filepath.Join(root, "docs/promises.md"))
	for _, f := range []struct{ says, file, code string }{
		{"`relay.confidence_window` (2 min)", "relay/config.go", "DefaultConfidenceWindow = 2 * time.Minute"},
		{"the CDC ttl (3 days)", "schema/options.go", "DefaultCDCTTL = 3 * 24 * time.Hour"},
		{"`schema.row_ttl` (7 days)", "schema/options.go", "DefaultRowTTL = 7 * 24 * time.Hour"},
		{"within 6/7 of that time", "orders/config.go", "c.RowTTL*6/7"},
		{"an alert at half of that time", "orders/metrics.go", "-rowTTL/2).Seconds()"},
		{"before 250,000 other aggregates", "relay/config.go", "DefaultMaxAggregates = 500_000"},
		{"the last 250,000 at least", "relay/internal/dedup/lines.go", "x.most()/2/Stripes"},
		{"before 1,000 later such numbers", "relay/internal/dedup/gaps.go", "maxGaps = 1000"},
		{"its last 32", "relay/internal/dedup/gaps.go", "recentNumbers = 32"},
		{"more than half of the CDC ttl", "relay/internal/backfill/backfill.go", "facts.CDCTTL/2"},
		{"off by more than a second", "internal/dbclock/dbclock.go", "SkewTolerated = time.Second"},
		{"within 5 s after it is added again", "relay/table_watch.go", "watchAtLeast = 5 * time.Second"},
		{"still missing 5 s after", "relay/config.go", "DefaultGapWait = 5 * time.Second"},
		{"writes of at most 4 s", "relay/config.go", "DefaultTailOverlap = 2 * time.Second"},
		{"no broker knows it for 5 s", "relay/internal/readback/readback.go", "Patience = 5 * time.Second"},
		{"three quarters of `relay.dedup_memory_bytes`", "relay/internal/dedup/share.go", "s.events/4*3"},
		{"beyond twice the setting", "relay/internal/dedup/share.go", "readBackRoom = 2"},
		{"more than a day behind", "relay/internal/readback/clock.go", "maxBehind = 24 * time.Hour"},
		{"the last hundred records", "relay/internal/readback/clock.go", "checkRecords = 100"},
		{"more than a second after its creation", "relay/internal/readback/proof_near.go", "proofMargin = 1000"},
		{"more than 250 ms after the relay's end", "relay/config.go", "DefaultReadBackQuiet = 250 * time.Millisecond"},
		{"a quarter of `relay.dedup_memory_bytes`", "relay/internal/dedup/index.go", "x.most()/4/Stripes"},
		{"one in 10 s", "relay/internal/publish/conflicts.go", "verifyEvery = 10 * time.Second"},
		{"the last ten minutes", "relay/internal/readback/proof_wide.go", "idAge = 10 * time.Minute"},
		{"a problem at 80 %", "relay/internal/dedup/near.go", "nearFullPercent = 80"},
		{"every 100 ms at most", "relay/config.go", "DefaultTailMaxInterval = 100 * time.Millisecond"},
		{"reads take more than 50 ms", "relay/internal/capture/tail_group.go", "max(g.interval, 2*g.latency)"},
		{"more than 1,000 a second", "relay/config.go", "DefaultTailMaxQueriesPerSecond = 1000"},
		{"more than 10 s after the write", "outbox/validate.go", "MaxDelay = 10 * time.Second"},
		{"the confidence window and 30 s", "relay/internal/cdclog/table_info.go", "alterSettles = 30 * time.Second"},
	} {
		if !strings.Contains(promises, f.says) {
			t.Errorf("docs/promises.md does not have %q", f.says)
		}
		if code := strings.Join(strings.Fields(read(t, filepath.Join(root, f.file))), " "); !strings.Contains(code, f.code) {
			t.Errorf("%s does not have %q, but docs/promises.md has %q", f.file, f.code, f.says)
		}
	}
}
