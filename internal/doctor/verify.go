package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
)

// verifySlow is how old the last full pass of the verification may be.
const verifySlow = 48 * time.Hour

// checkVerification checks the results of the continuous verification by outbox admin.
func checkVerification(ctx context.Context, c *app.Config, session *gocql.Session) (out []Finding) {
	const check = "continuous verification"
	deadLetters, err := dlq.Open(session, c.Scylla.Keyspace)
	if err != nil {
		return []Finding{{check, false, err.Error(), "fix the reported error"}}
	}
	duty, err := deadLetters.Duty(app.VerifyDuty, doctorName, app.VerifyTTL)
	if err != nil {
		return []Finding{{check, false, err.Error(), "fix the reported error"}}
	}
	tables, err := verify.ReadPasses(ctx, duty)
	if err != nil {
		return []Finding{{check, false, err.Error(), "this user needs SELECT on " + c.Scylla.Keyspace + ".dead_letter_duties"}}
	}
	if len(tables) == 0 {
		return []Finding{{check, true, "no pass has started; outbox admin verifies unless verify.rows_per_second is off", ""}}
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		out = append(out, passFinding(check+" of "+name, tables[name], time.Now()))
	}
	return out
}

// passFinding returns the finding on the passes over a table.
func passFinding(check string, p *verify.PassState, now time.Time) Finding {
	last := p.LastPass
	if last.IsZero() {
		last = p.Began
	}
	switch {
	case p.Missing > 0:
		return Finding{check, false, fmt.Sprintf("%d events are in no topic and have no dead letter", p.Missing), "compare relay.topics of outbox admin with the relay's, then run outbox verify --repair"}
	case now.Sub(last) > verifySlow:
		return Finding{
			check, false, "no full pass has ended since " + last.UTC().Format(time.RFC3339),
			"the log of outbox admin has the reason; if the pass is only slow, raise verify.rows_per_second",
		}
	case p.LastPass.IsZero():
		return Finding{check, true, fmt.Sprintf("the first pass is under way: %d of %d ranges", p.Done, p.Ranges), ""}
	}
	return Finding{check, true, "no event written before " + p.Verified.UTC().Format(time.RFC3339) + " is missing", ""}
}
