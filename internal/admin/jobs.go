package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
)

// JobBody is a bulk operation.
type JobBody struct {
	ID           string           `json:"id" format:"uuid"`
	Action       dlq.Action       `json:"action"`
	Filter       *dlq.Filter      `json:"filter,omitempty"`
	IDs          int              `json:"ids,omitempty" doc:"Number of dead letters that it names"`
	Limit        int              `json:"limit,omitempty"`
	Rate         float64          `json:"rate,omitempty" doc:"Dead letters per second; absent if unlimited"`
	BatchSize    int              `json:"batch_size"`
	Canary       bool             `json:"canary"`
	Force        bool             `json:"force,omitempty" doc:"For a purge: includes failed and suspended dead letters"`
	ByPriority   bool             `json:"by_priority,omitempty" doc:"For a replay: higher priorities first"`
	InOrder      bool             `json:"in_order,omitempty" doc:"One dead letter after the other, in the order of its ids"`
	Redelivery   *jobs.Redelivery `json:"redelivery,omitempty" doc:"For a replay: the messages of a subscription that it delivers once more. It makes their dead letters first"`
	Set          *dlq.Labels      `json:"set,omitempty" doc:"For the action set: the change of priority and tags"`
	Topic        string           `json:"topic,omitempty" doc:"For a redirect: the topic to publish to"`
	NoArchive    bool             `json:"no_archive,omitempty" doc:"For a purge: the dead letters are deleted without an archive"`
	Actor        string           `json:"actor"`
	Reason       string           `json:"reason,omitempty"`
	State        jobs.State       `json:"state" enum:"queued,running,paused,done,cancelled,failed"`
	Version      int64            `json:"version"`
	Progress     jobs.Progress    `json:"progress"`
	Failed       int              `json:"failed" doc:"Dead letters whose replay failed"`
	Error        string           `json:"error,omitempty" doc:"Why it paused automatically or failed"`
	CanaryFailed []string         `json:"canary_failed,omitempty" nullable:"false" doc:"While its canary has paused it: the dead letters that failed again. A resumed job does not replay them; another job with these ids does"`
	RunBy        string           `json:"run_by,omitempty"`
	CreatedAt    time.Time        `json:"created_at"`
	StartedAt    *time.Time       `json:"started_at,omitempty"`
	FinishedAt   *time.Time       `json:"finished_at,omitempty" doc:"The report is final from this time"`
	History      []jobs.JobChange `json:"history"`
}

func newJobBody(j *jobs.Job) JobBody {
	b := JobBody{
		ID: j.ID.String(), Action: j.Action, IDs: len(j.IDs), Limit: j.Limit, Rate: j.Rate, BatchSize: j.BatchSize, Canary: j.Canary, Force: j.Force, NoArchive: j.NoArchive, ByPriority: j.ByPriority, InOrder: j.InOrder, Redelivery: j.Redelivery, Set: j.Set, Topic: j.Topic,
		Actor: j.Actor.Name, Reason: j.Actor.Reason, State: j.State, Version: j.Version, Progress: j.Progress, Failed: j.Progress.Failed(), Error: j.Error,
		RunBy: j.ClaimedBy, CreatedAt: j.CreatedAt(), StartedAt: when(j.Started), FinishedAt: when(j.Finished), History: j.History,
	}
	if len(j.IDs) == 0 && j.Redelivery == nil && j.Action != dlq.ActionArchive {
		f := j.Filter
		b.Filter = &f
	}
	for _, id := range j.CanaryFailed() {
		b.CanaryFailed = append(b.CanaryFailed, id.String())
	}
	if b.History == nil {
		b.History = []jobs.JobChange{}
	}
	return b
}

type jobOutput struct {
	ETag string `header:"ETag" doc:"Version of the job"`
	Body JobBody
}

func newJobResponse(j *jobs.Job) *jobOutput {
	return &jobOutput{ETag: etag(j.Version), Body: newJobBody(j)}
}

type newJobInput struct {
	OnceInput
	Body NewJobBody
}

// OnceInput makes the creation of a job repeatable.
type OnceInput struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes retries safe: one job is created, and a retry by the same caller receives it as it is, with Idempotency-Replayed: true. Keys expire after 7 days. 1 to 255 printable ASCII characters without spaces, quoted or not. A dry run ignores it."`
}

// Resolve removes the quotes of a key and refuses an invalid one.
func (in *OnceInput) Resolve(ctx huma.Context) []error {
	in.IdempotencyKey = httpapi.Key(in.IdempotencyKey)
	return httpapi.ValidKey(ctx)
}

// NewJobBody is the request of a job.
type NewJobBody struct {
	JobTarget
	BatchSize int    `json:"batch_size,omitempty" minimum:"0" maximum:"1000" doc:"Dead letters between two saves of the progress; 0 means 100, for a purge 1000"`
	Follow    string `json:"follow,omitempty" maxLength:"30" doc:"For a replay or a redirect: how long the job waits for the results of a batch, such as 30s; default 10m, and 0s does not wait"`
	Canary    bool   `json:"canary,omitempty" doc:"For a replay: start with 1, 2, 5 and 20 dead letters, and pause if one fails again with the same error"`
	DryRun    bool   `json:"dry_run,omitempty" doc:"Return a preview without creating a job (200)"`
}

type newJobOutput struct {
	Status   int
	Location string `header:"Location" doc:"The job"`
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key has created it"`
	Body     any    // a JobBody, or of a dry run a dryJobBody
}

// dryJobBody is the response to a dry run, which creates no job.
type dryJobBody struct {
	DryRun  bool        `json:"dry_run" doc:"Always true"`
	Preview PreviewBody `json:"preview" doc:"Preview of the effects"`
}

type jobsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"500" default:"50"`
	httpapi.Page
}

type jobsOutput struct {
	Body struct {
		Jobs []JobBody `json:"jobs" doc:"Newest first"`
		Next string    `json:"next,omitempty"`
	}
}

type jobInput struct {
	ID string `path:"id" format:"uuid"`
}

// steering is a change of a job.
type steering struct {
	name, summary string
	role          access.Role
	do            func(*jobs.Store, context.Context, gocql.UUID, dlq.Actor) error
	// continues reports that the job proceeds, so the change needs the role of the job's
	// action.
	continues bool
}

// Cancel needs the role admin, because a cancelled job cannot be resumed. Any operator
// may pause any job.
var steerings = []steering{
	{"pause", "Pause a job between two dead letters", access.Operator, (*jobs.Store).Pause, false},
	{"resume", "Resume a job; discard, redirect, purge, restore and sweep need the role admin", access.Operator, (*jobs.Store).Resume, true},
	{"cancel", "Cancel a job; completed changes are kept", access.Admin, (*jobs.Store).Cancel, false},
}

// jobEndpoints create and steer jobs, and preview them.
type jobEndpoints struct {
	*operations
	store   *dlq.Store
	jobs    *jobs.Store
	audit   *audit
	archive *archiveEndpoints
	relays  *relayEndpoints
	kafka   Kafka // nil if there is no broker
	waits   func()
}

func (ep *jobEndpoints) register() {
	huma.Register(ep.api, ep.describeChange(access.Operator, false, huma.Operation{
		OperationID: "create-job", Method: http.MethodPost, Path: "/v1/jobs", DefaultStatus: http.StatusAccepted,
		Summary:     "Create a job that changes many dead letters or moves old ones to the archive",
		Description: "A runner executes the job. Discard, redirect, purge, restore and sweep need the role admin.",
		Responses: map[string]*huma.Response{
			"200": ep.answer("Preview of the effects, for a dry run", reflect.TypeFor[dryJobBody]()),
			"202": ep.answer("The job", reflect.TypeFor[JobBody]()),
		},
	}, 404, 409), ep.createJob)
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-jobs", Method: http.MethodGet, Path: "/v1/jobs", Summary: "List jobs",
	}), ep.listJobs)
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-job", Method: http.MethodGet, Path: "/v1/jobs/{id}", Summary: "Get a job with its progress",
	}, 404), ep.getJob)
	for _, st := range steerings {
		huma.Register(ep.api, ep.describeChange(st.role, true, huma.Operation{
			OperationID: st.name + "-job", Method: http.MethodPost, Path: "/v1/jobs/{id}/" + st.name, Summary: st.summary,
		}, 404, 409), func(ctx context.Context, in *jobInput) (*jobOutput, error) { return ep.steer(ctx, &st, in) })
	}
}

// answer describes a response of an operation with several responses.
func (ep *jobEndpoints) answer(what string, body reflect.Type) *huma.Response {
	schema := ep.api.OpenAPI().Components.Schemas.Schema(body, true, "")
	return &huma.Response{Description: what, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

func (ep *jobEndpoints) createJob(ctx context.Context, in *newJobInput) (*newJobOutput, error) {
	b := &in.Body
	if err := permitJob(ctx, b.Action); err != nil {
		return nil, err
	}
	if b.Canary && b.Action != dlq.ActionReplay {
		return nil, invalid(ctx, "body.canary", "allowed only for a replay")
	}
	spec, err := ep.newSpec(ctx, &b.JobTarget)
	if err != nil {
		return nil, err
	}
	if b.Action == dlq.ActionRedirect && !ep.mayExist(ctx, b.Topic) {
		return nil, invalid(ctx, "body.topic", fmt.Sprintf("topic %q does not exist: create it, or correct the name", b.Topic))
	}
	if b.DryRun {
		p, err := ep.newPreview(ctx, &spec)
		if err != nil {
			return nil, ep.toProblem(ctx, err, false)
		}
		return &newJobOutput{Status: http.StatusOK, Body: dryJobBody{DryRun: true, Preview: p}}, nil
	}
	spec.BatchSize, spec.Canary = b.BatchSize, b.Canary
	if spec.Follow, err = b.follow(ctx); err != nil {
		return nil, err
	}
	said := *b
	if n := len(said.IDs); n > auditIDs {
		said.IDs = said.IDs[:auditIDs:auditIDs]
	}
	return ep.create(ctx, in.IdempotencyKey, b, spec, entry{Action: createJob}, said)
}

// create creates a job, once for the requests of a caller with a key and the same content. detail
// is for the audit trail; the target of an entry without one is the job, otherwise the result is.
func (ep *jobEndpoints) create(ctx context.Context, key string, content any, spec jobs.Spec, e entry, detail any) (*newJobOutput, error) {
	if err := spec.Validate(); err != nil {
		return nil, invalid(ctx, "body", err.Error())
	}
	client, _ := access.From(ctx)
	request, err := requestkeys.New("admin", client.Name, key, content)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	said, err := json.Marshal(detail)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	e.Detail = string(said)
	var job *jobs.Job
	var repeated bool
	err = ep.audit.changeWithResult(ctx, e, func(ctx context.Context, by dlq.Actor) (target, result string, err error) {
		if key != "" {
			job, repeated, err = ep.jobs.CreateOnce(ctx, request, spec, by)
		} else {
			job, err = ep.jobs.Create(ctx, spec, by)
		}
		switch {
		case err != nil:
			return "", "", err
		case e.Target == "":
			return job.ID.String(), "", nil
		}
		return "", `{"job":"` + job.ID.String() + `"}`, nil
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	ep.waits()
	out := &newJobOutput{Status: http.StatusAccepted, Location: "/v1/jobs/" + job.ID.String(), Body: newJobBody(job)}
	if repeated {
		out.Replayed = "true"
	}
	return out, nil
}

// follow returns the time that the job waits for results: 0 for the default, negative for
// none.
func (b *NewJobBody) follow(ctx context.Context) (time.Duration, error) {
	if b.Follow == "" {
		return 0, nil
	}
	d, ok := httpapi.Duration(b.Follow).Parse()
	switch {
	case !b.Action.Publishes():
		return 0, invalid(ctx, "body.follow", "allowed only for a replay or a redirect")
	case !ok:
		return 0, invalid(ctx, "body.follow", "must be a duration such as 30s or 10m; 0s does not wait")
	case d == 0:
		return -1, nil
	}
	return d, nil
}

// permitJob refuses a caller without the role of the job's action.
func permitJob(ctx context.Context, action dlq.Action) error {
	p, _ := access.From(ctx)
	if err := access.Permit(p, requiredRole(action)); err != nil {
		return newProblem(ctx, httpapi.TypeForbidden, err.Error())
	}
	return nil
}

// requiredRole returns the role that creating or resuming a job of an action needs.
func requiredRole(action dlq.Action) access.Role {
	for _, a := range actions {
		if a.action == action {
			return a.role
		}
	}
	if action == dlq.ActionSet {
		return access.Operator
	}
	return access.Admin // purge, redirect, restore and archive
}

// auditIDs is the maximum number of ids in an audit entry; the job contains all of them.
const auditIDs = 100

func (ep *jobEndpoints) listJobs(ctx context.Context, in *jobsInput) (*jobsOutput, error) {
	var after gocql.UUID
	if in.Cursor != "" {
		if err := readPosition(ctx, in.Cursor, &after); err != nil {
			return nil, err
		}
		if after.Version() != 1 {
			return nil, invalid(ctx, "query.cursor", httpapi.ProblemCursor)
		}
	}
	list, err := ep.jobs.List(ctx, after, in.Limit+1)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(jobsOutput)
	out.Body.Jobs = []JobBody{}
	for i, j := range list {
		if i == in.Limit {
			out.Body.Next = in.Next(formatPosition(list[i-1].ID))
			break
		}
		out.Body.Jobs = append(out.Body.Jobs, newJobBody(j))
	}
	return out, nil
}

func (ep *jobEndpoints) getJob(ctx context.Context, in *jobInput) (*jobOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	j, err := ep.jobs.Read(ctx, id)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return newJobResponse(j), nil
}

func (ep *jobEndpoints) steer(ctx context.Context, st *steering, in *jobInput) (*jobOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	if st.continues {
		j, err := ep.jobs.Read(ctx, id)
		if err != nil {
			return nil, ep.toProblem(ctx, err, false)
		}
		if err := permitJob(ctx, j.Action); err != nil {
			return nil, err
		}
	}
	err = ep.audit.change(ctx, entry{Action: st.name + "-job", Target: id.String()}, func(ctx context.Context, by dlq.Actor) (string, error) {
		return "", st.do(ep.jobs, ctx, id, by)
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	ep.waits()
	j, err := ep.jobs.Read(ctx, id)
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	return newJobResponse(j), nil
}
