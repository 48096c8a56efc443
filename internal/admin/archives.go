package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

type archivesInput struct {
	Limit int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Since time.Time `query:"since" doc:"Objects of this day (UTC) or later"`
	httpapi.Page
}

// ArchiveObject is an object of the archive.
type ArchiveObject struct {
	Object      string             `json:"object" doc:"Name of the object, for a restore"`
	DeadLetters int                `json:"dead_letters"`
	Bytes       int64              `json:"bytes" doc:"Compressed size"`
	SHA256      string             `json:"sha256"`
	From        time.Time          `json:"from" doc:"Earliest first failure of its dead letters"`
	To          time.Time          `json:"to" doc:"Latest first failure of its dead letters"`
	ByStatus    map[dlq.Status]int `json:"by_status" doc:"The dead letters by their status before archiving"`
	CreatedAt   time.Time          `json:"created_at"`
	By          string             `json:"by"`
	Expires     *time.Time         `json:"expires_at,omitempty" doc:"Time of its removal"`
}

type archivesOutput struct {
	Body struct {
		Configured bool            `json:"configured" doc:"Whether this server has an archive"`
		Objects    []ArchiveObject `json:"objects" doc:"Oldest first"`
		Next       string          `json:"next,omitempty"`
	}
}

// archiveEndpoints list the objects of the archive. keeper is nil without one.
type archiveEndpoints struct {
	*operations
	keeper *archive.Sweeper
}

func (ep *archiveEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-archives", Method: http.MethodGet, Path: "/v1/archives",
		Summary: "List the objects of the archive", Description: "A job with the action restore restores their dead letters; one with the action archive sweeps immediately.",
	}), ep.archives)
}

func (ep *archiveEndpoints) archives(ctx context.Context, in *archivesInput) (*archivesOutput, error) {
	out := new(archivesOutput)
	out.Body.Objects = []ArchiveObject{}
	if ep.keeper == nil {
		return out, nil
	}
	out.Body.Configured = true
	var after string
	if in.Cursor != "" {
		if err := readPosition(ctx, in.Cursor, &after); err != nil {
			return nil, err
		}
	}
	err := ep.heavily(ctx, func() error {
		return ep.keeper.Archive().ListAfter(ctx, after, in.Since, func(m archive.Manifest) error {
			if n := len(out.Body.Objects); n == in.Limit {
				out.Body.Next = in.Next(formatPosition(out.Body.Objects[n-1].Object))
				return dlq.ErrStop
			}
			out.Body.Objects = append(out.Body.Objects, ep.newArchiveObject(&m))
			return nil
		})
	})
	if err != nil {
		return nil, ep.archiveProblem(ctx, err)
	}
	return out, nil
}

func (ep *archiveEndpoints) newArchiveObject(m *archive.Manifest) ArchiveObject {
	return ArchiveObject{
		Object: m.Object, DeadLetters: m.DeadLetters, Bytes: m.Bytes, SHA256: m.SHA256, From: m.From, To: m.To, ByStatus: m.ByStatus,
		CreatedAt: m.CreatedAt, By: m.By, Expires: when(ep.keeper.Expires(m)),
	}
}

// readEventIDs returns the ids of the events in an object.
func (ep *archiveEndpoints) readEventIDs(ctx context.Context, object string) ([]string, error) {
	m, err := ep.keeper.Archive().Manifest(ctx, object)
	if err != nil {
		return nil, ep.archiveProblem(ctx, err)
	}
	return m.Events, nil
}

// planSweep sets the preview of a sweep.
func (ep *archiveEndpoints) planSweep(ctx context.Context, b *PreviewBody) error {
	plan, more, err := ep.keeper.Plan(ctx)
	if err != nil {
		return err
	}
	b.Action, b.Truncated, b.Expired = dlq.ActionArchive, more, len(plan.Expired)
	b.ByStatus, b.Refused = plan.Archived, map[dlq.Status]int{}
	b.ByClass, b.ByTopic = map[string]int{}, map[string]int{}
	for _, n := range plan.Archived {
		b.DeadLetters += n
	}
	if plan.Held > 0 {
		b.Refused[dlq.Failed] = plan.Held
	}
	b.LookedAt = b.DeadLetters + plan.Held
	return nil
}

// archiveProblem converts an error of the archive to a problem.
func (o *operations) archiveProblem(ctx context.Context, err error) error {
	if errors.Is(err, archive.ErrNotFound) {
		return newProblem(ctx, httpapi.TypeNotFound, "There is no such object in the archive.")
	}
	if ctx.Err() == nil {
		o.log.ErrorContext(ctx, "failed to read archive", "err", err)
	}
	p := newProblem(ctx, httpapi.TypeUnavailable, "The archive cannot be read; see the log.")
	p.Header().Set("Retry-After", retryAfter)
	return p
}
