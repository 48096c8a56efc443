package layout

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each figure of docs/promises.md, and of the pages with its details, that is a constant of the code
// is that of the code.
func TestPromises_FiguresAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	const promises, design, ownTables = "docs/promises.md", "docs/design/relay.md", "docs/own-tables.md"
	for _, f := range []struct{ page, says, file, code string }{
		{promises, "`relay.confidence_window` (2 min)", "relay/internal/capture/config.go", `ConfidenceWindow time.Duration 'setting:"confidence_window" default:"2m"`},
		{promises, "CDC ttl, 3 days", "schema/options.go", "DefaultCDCTTL = 3 * 24 * time.Hour"},
		{promises, "`schema.row_ttl`, 7 days", "schema/options.go", "DefaultRowTTL = 7 * 24 * time.Hour"},
		{promises, "within 6/7 of that time", "orders/config.go", "c.RowTTL*6/7"},
		{"docs/protocol.md", "must run once in half of the TTL", "orders/metrics.go", "-rowTTL/2).Seconds()"},
		{design, "the last 250,000 aggregates at least", "relay/config.go", `MaxAggregates int 'default:"500000"`},
		{design, "half of `MaxAggregates`", "relay/internal/dedup/lines.go", "x.most()/2, 1"},
		{design, "the last 1,000 numbers that were passed over", "relay/internal/dedup/gaps.go", "maxGaps = 1000"},
		{design, "the last 32 of its aggregate", "relay/internal/dedup/gaps.go", "recentNumbers = 32"},
		{promises, "half of the CDC ttl ahead", "relay/internal/backfill/backfill.go", "facts.CDCTTL/2"},
		{design, "off by more than a second", "internal/dbclock/dbclock.go", "SkewTolerated = time.Second"},
		{ownTables, "the first 5 s after it is added again", "relay/table_watch.go", "watchAtLeast = 5 * time.Second"},
		{promises, "missing 5 s after", "relay/internal/capture/config.go", `GapWait time.Duration 'default:"5s"`},
		{promises, "writes of at most 4 s", "relay/internal/capture/config.go", `TailOverlap time.Duration 'default:"2s"`},
		{design, "no broker knows it for 5 s", "relay/internal/readback/readback.go", "Patience = 5 * time.Second"},
		{promises, "three quarters of `relay.dedup_memory_bytes`", "relay/internal/dedup/share.go", "s.events/4*3"},
		{design, "three quarters of `DedupMemory`", "relay/internal/dedup/share.go", "s.events/4*3"},
		{design, "beyond twice the setting", "relay/internal/dedup/share.go", "readBackRoom = 2"},
		{design, "more than a day behind", "relay/internal/readback/clock.go", "maxBehind = 24 * time.Hour"},
		{design, "the last hundred records", "relay/internal/readback/clock.go", "checkRecords = 100"},
		{design, "more than a second after its creation", "relay/internal/readback/proof_near.go", "proofMargin = 1000"},
		{promises, "for 250 ms beyond the relay's end", "relay/internal/readback/config.go", `ReadBackQuiet time.Duration 'default:"250ms"`},
		{design, "a quarter of `DedupMemory`", "relay/internal/dedup/index.go", "x.most()/4,"},
		{design, "one in 10 s", "relay/internal/publish/conflicts.go", "verifyEvery = 10 * time.Second"},
		{design, "the last ten minutes", "relay/internal/readback/proof_wide.go", "idAge = 10 * time.Minute"},
		{promises, "reports 80 % of it", "relay/internal/dedup/near.go", "nearFullPercent = 80"},
		{promises, "every 100 ms at most", "relay/internal/capture/config.go", `TailMaxInterval time.Duration 'setting:"tail_max_interval" default:"100ms"`},
		{design, "takes more than 50 ms", "relay/internal/capture/tail_group.go", "max(g.interval, 2*g.latency)"},
		{design, "more than 1,000 a second", "relay/internal/capture/config.go", `TailMaxQueriesPerSecond float64 'default:"1000"`},
		{promises, "more than 10 s after the write", "outbox/validate.go", "MaxDelay = 10 * time.Second"},
		{promises, "the confidence window and 30 s", "relay/internal/cdclog/table_info.go", "alterSettles = 30 * time.Second"},
	} {
		text := strings.Join(strings.Fields(read(t, filepath.Join(root, f.page))), " ")
		if !strings.Contains(text, f.says) {
			t.Errorf("%s does not have %q", f.page, f.says)
		}
		if code := strings.ReplaceAll(strings.Join(strings.Fields(read(t, filepath.Join(root, f.file))), " "), "`", "'"); !strings.Contains(code, f.code) {
			t.Errorf("%s does not have %q, but %s has %q", f.file, f.code, f.page, f.says)
		}
	}
}

// The service to copy is as short as the page promises.
func TestExample_IsAsShortAsPromised(t *testing.T) {
	t.Parallel()
	if page := read(t, filepath.Join(root, "docs/own-tables.md")); !strings.Contains(page, "120 lines of Go") {
		t.Error("docs/own-tables.md does not have the number of lines")
	}
	if lines := strings.Count(read(t, filepath.Join(root, "examples/service/main.go")), "\n"); lines > 120 {
		t.Errorf("examples/service/main.go has %d lines, at most 120 are promised", lines)
	}
}
