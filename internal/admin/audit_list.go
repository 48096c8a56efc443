package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

const (
	// auditSpan is the default period that a request reads.
	auditSpan = 30 * 24 * time.Hour
	// auditDays and auditEntries bound what one request reads; the response then contains a
	// cursor.
	auditDays    = 400
	auditEntries = 5000
	// auditAhead is the number of days that are read concurrently at first, and auditMost later.
	auditAhead, auditMost = 4, 128
)

type auditInput struct {
	Since  time.Time `query:"since" doc:"Entries of this time or later; default 30 days ago"`
	Until  time.Time `query:"until" doc:"Entries before this time"`
	Actor  string    `query:"actor" maxLength:"300"`
	Action []string  `query:"action" nullable:"false" maxItems:"50" doc:"Entries of these actions, such as deliver-messages-now; several separated by commas"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"100"`
	httpapi.Page
}

type auditOutput struct {
	Body struct {
		Entries []AuditEntry `json:"entries" doc:"Newest first"`
		Next    string       `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page. With a filter, a page can have few entries and a cursor."`
	}
}

// auditEndpoints list the audit trail.
type auditEndpoints struct {
	*operations
	audit *audit
	jobs  *jobs.Store
}

func (ep *auditEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Summary: "List the audit trail: changes by this API and by the command line",
	}), ep.list)
}

// auditPlace is the cursor of a listing: the last entry that was processed.
type auditPlace struct {
	ID    gocql.UUID `json:"id"`
	Since time.Time  `json:"since"` // the first request's, so that pages agree
}

func (ep *auditEndpoints) list(ctx context.Context, in *auditInput) (*auditOutput, error) {
	since, until := in.Since, in.Until
	if until.IsZero() {
		until = time.Now().Add(24 * time.Hour) // clocks differ
	}
	if since.IsZero() {
		since = time.Now().Add(-auditSpan)
		if !in.Until.IsZero() && since.After(in.Until) {
			since = in.Until.Add(-auditSpan)
		}
	}
	if err := span(ctx, "query.", since, until); err != nil {
		return nil, err
	}
	to := gocql.MaxTimeUUID(until.Add(-time.Millisecond))
	var after gocql.UUID
	if in.Cursor != "" {
		var at auditPlace
		if err := readPosition(ctx, in.Cursor, &at); err != nil {
			return nil, err
		}
		if at.ID.Version() != 1 {
			return nil, invalid(ctx, "query.cursor", httpapi.ProblemCursor)
		}
		after, since, to = at.ID, at.Since, at.ID
	}
	out := new(auditOutput)
	out.Body.Entries = []AuditEntry{}
	err := ep.heavily(ctx, func() error {
		err := ep.walk(ctx, in, since, to, after, out)
		if err == nil {
			ep.summarize(ctx, out.Body.Entries)
		}
		return err
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return out, nil
}

// walk reads from the entry to back to since. It reads several days concurrently, and more if they
// contain little.
func (ep *auditEndpoints) walk(ctx context.Context, in *auditInput, since time.Time, to, after gocql.UUID, out *auditOutput) error {
	from := gocql.MinTimeUUID(since)
	filtered := in.Actor != "" || len(in.Action) > 0
	looked, width := 0, auditAhead
	day, last := dayPartition(to.Time()), dayPartition(since)
	oldest := dayPartition(to.Time()).AddDate(0, 0, 1-auditDays) // of this request
	for !day.Before(last) && !day.Before(oldest) {
		limit := in.Limit + 2 - len(out.Body.Entries) // with the entry after, and one more
		if filtered {
			limit = max(limit, 4*auditEntries/width)
		}
		days := make([]auditDay, 0, width)
		for d := day; len(days) < width && !d.Before(last) && !d.Before(oldest); d = d.AddDate(0, 0, -1) {
			days = append(days, auditDay{day: d})
		}
		if err := ep.readDays(ctx, days, from, to, limit); err != nil {
			return err
		}
		for i := range days {
			d := &days[i]
			for _, e := range d.entries {
				id, err := gocql.ParseUUID(e.ID)
				if err != nil {
					return err
				}
				if to = id; id == after {
					continue
				}
				looked++
				if len(out.Body.Entries) == in.Limit || looked > auditEntries {
					// The entry before this one was the last that was processed.
					out.Body.Next = in.Next(formatPosition(auditPlace{ID: after, Since: since}))
					return nil
				}
				after = id
				if (in.Actor == "" || in.Actor == e.Actor) && (len(in.Action) == 0 || slices.Contains(in.Action, e.Action)) {
					out.Body.Entries = append(out.Body.Entries, e)
				}
			}
			if day = d.day; len(d.entries) == limit {
				break // there may be more of this day
			}
			day = day.AddDate(0, 0, -1)
		}
		width = min(8*width, auditMost)
	}
	if !day.Before(last) {
		out.Body.Next = in.Next(formatPosition(auditPlace{ID: gocql.MinTimeUUID(day.AddDate(0, 0, 1)), Since: since}))
	}
	return nil
}

// auditDay is a day of the audit trail with entries, newest first.
type auditDay struct {
	day     time.Time
	entries []AuditEntry
}

// readDays reads up to limit entries of each of some days, between two ids.
func (ep *auditEndpoints) readDays(ctx context.Context, days []auditDay, from, to gocql.UUID, limit int) error {
	g, gctx := errgroup.WithContext(ctx)
	for i := range days {
		g.Go(func() (err error) {
			d := &days[i]
			upTo := to
			if last := gocql.MaxTimeUUID(d.day.AddDate(0, 0, 1).Add(-time.Millisecond)); last.Time().Before(to.Time()) {
				upTo = last
			}
			d.entries, err = ep.audit.day(gctx, d.day, from, upTo, limit)
			return err
		})
	}
	return g.Wait()
}
