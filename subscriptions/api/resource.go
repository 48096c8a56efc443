package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// subscriptionInput is the body of PUT, for the description.
type subscriptionInput struct {
	Topics            []topicPattern            `json:"topics" minItems:"1" maxItems:"100" doc:"Topic names, or patterns in which * matches any characters"`
	Types             []typePattern             `json:"types,omitempty" doc:"Event types, or patterns with *; all by default"`
	Filter            string                    `json:"filter,omitempty" doc:"CEL expression over the event; only messages for which it is true are delivered"`
	Transform         string                    `json:"transform,omitempty" doc:"CEL expression over the event that returns a map with payload, headers or both: what is delivered instead. Null removes a header. A message for which it fails becomes a dead letter"`
	Start             startText                 `json:"start,omitempty" doc:"First record of partitions without a position: latest (default), earliest or a time in RFC 3339"`
	Ordering          subscriptions.Ordering    `json:"ordering,omitempty" enum:"key,strict,none" doc:"key (default): the messages of a key are delivered one at a time, in order. strict: a key also waits for its dead letter. none: any order"`
	VisibilityTimeout httpapi.Duration          `json:"visibility_timeout,omitempty" doc:"Duration of a lease: 1s to 12h, default 30s"`
	MaxExtension      httpapi.Duration          `json:"max_extension,omitempty" doc:"Limit of one delivery: its lease ends at most so long after it began, whatever extensions want. visibility_timeout to 12h, default 12h"`
	MaxReceive        int                       `json:"max_receive,omitempty" minimum:"1" maximum:"1000" doc:"Number of deliveries after which a message becomes a dead letter; default 3"`
	Backoff           httpapi.Duration          `json:"backoff,omitempty" doc:"Delay after the first failed delivery; each further failure multiplies it by backoff_multiplier, up to max_backoff, with jitter. Default 1s"`
	BackoffMultiplier int                       `json:"backoff_multiplier,omitempty" minimum:"1" maximum:"10" doc:"Default 2"`
	MaxBackoff        httpapi.Duration          `json:"max_backoff,omitempty" doc:"Default 5m"`
	Push              *pushBody                 `json:"push,omitempty" doc:"Delivers the messages to a destination; visibility_timeout is the time-out of a call. Without it they are received"`
	DeadLetter        *subscriptions.DeadLetter `json:"dead_letter,omitempty" doc:"Name and retention of its dead letters"`
	Paused            bool                      `json:"paused,omitempty" doc:"Stops deliveries; leases that exist stay valid. Omitted, the state that pause and resume have set is kept"`
	// The other members of the response, which can be changed and sent back.
	Name      string    `json:"name,omitempty" doc:"That of the path"`
	Version   int64     `json:"version,omitempty" minimum:"0" doc:"Version that is replaced, as If-Match; 0 is any"`
	CreatedAt time.Time `json:"created_at,omitzero" doc:"Ignored"`
	ChangedAt time.Time `json:"changed_at,omitzero" doc:"Ignored"`
	ChangedBy string    `json:"changed_by,omitempty" doc:"Ignored"`
}

// pushBody is the push delivery of a subscription.
type pushBody struct {
	To          string `json:"to" minLength:"1" maxLength:"60" doc:"Name of a target of subscriptions.targets, whose URL is secret, of a Go plugin, or log"`
	Title       string `json:"title,omitempty" doc:"Title of the message to a target, with CEL expressions over the event between {{ and }}"`
	Text        string `json:"text,omitempty" doc:"Its text, with expressions as in title"`
	Severity    string `json:"severity,omitempty" enum:"info,warning,critical" doc:"For pagers; default info"`
	Concurrency int    `json:"concurrency,omitempty" minimum:"1" maximum:"1000" doc:"Concurrent calls in each process; default 4"`
}

// subscriptionBody is a stored subscription.
type subscriptionBody struct {
	Name              string                    `json:"name"`
	Topics            []string                  `json:"topics"`
	Types             []string                  `json:"types,omitempty"`
	Filter            string                    `json:"filter,omitempty"`
	Transform         string                    `json:"transform,omitempty"`
	Start             string                    `json:"start"`
	Ordering          subscriptions.Ordering    `json:"ordering" enum:"key,strict,none"`
	VisibilityTimeout string                    `json:"visibility_timeout"`
	MaxExtension      string                    `json:"max_extension"`
	MaxReceive        int                       `json:"max_receive"`
	Backoff           string                    `json:"backoff"`
	BackoffMultiplier int                       `json:"backoff_multiplier"`
	MaxBackoff        string                    `json:"max_backoff"`
	Push              *pushBody                 `json:"push,omitempty" doc:"Absent with pull delivery"`
	DeadLetter        *subscriptions.DeadLetter `json:"dead_letter,omitempty" doc:"Absent with the defaults"`
	Paused            bool                      `json:"paused,omitempty"`
	Version           int64                     `json:"version" doc:"Number of changes, which ETag contains"`
	CreatedAt         time.Time                 `json:"created_at"`
	ChangedAt         time.Time                 `json:"changed_at"`
	ChangedBy         string                    `json:"changed_by,omitempty" doc:"Principal of the last change"`
}

func newBody(s *subscriptions.Subscription) subscriptionBody {
	b := subscriptionBody{
		Name: s.Name, Topics: s.Topics, Types: s.Types, Filter: s.Filter, Transform: s.Transform, Start: s.Start, Ordering: s.Ordering,
		VisibilityTimeout: short(s.VisibilityTimeout), MaxExtension: short(s.MaxExtension), MaxReceive: s.MaxReceive, Backoff: short(s.Backoff), MaxBackoff: short(s.MaxBackoff), BackoffMultiplier: s.BackoffMultiplier,
		Push: (*pushBody)(s.Push), Paused: s.Paused, Version: s.Version, CreatedAt: s.CreatedAt.UTC(), ChangedAt: s.ChangedAt.UTC(), ChangedBy: s.ChangedBy,
	}
	if s.DeadLetter != (subscriptions.DeadLetter{}) {
		b.DeadLetter = &s.DeadLetter
	}
	return b
}

type statusBody struct {
	Subscription subscriptionBody                `json:"subscription"`
	Waiting      int64                           `json:"waiting" doc:"Messages in memory that can be leased"`
	Leased       int64                           `json:"leased" doc:"Messages in flight: delivered, and neither settled nor expired"`
	Deferred     int64                           `json:"deferred" doc:"Stored messages that wait for their next delivery"`
	Lag          int64                           `json:"lag" doc:"Messages that are not settled: waiting, leased, deferred, and not read yet, which types and filter may exclude"`
	Oldest       *time.Time                      `json:"oldest,omitempty" doc:"Write time of the oldest message that is not settled"`
	DeadLetters  int                             `json:"dead_letters" doc:"Open dead letters, at most 10,000"`
	Skips        []subscriptions.Skip            `json:"skips,omitempty" doc:"Ranges of offsets that were never delivered, because their topic had deleted them"`
	Consumers    []subscriptions.WaitingConsumer `json:"consumers" doc:"Consumers that wait for messages: long polls, streams and sockets; leases has those that have some"`
	Partitions   []subscriptions.PartitionStatus `json:"partitions"`
	Instances    []subscriptions.InstanceStatus  `json:"instances"`
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func newStatusBody(s *subscriptions.Status) statusBody {
	b := statusBody{
		Subscription: newBody(&s.Subscription), Waiting: s.Waiting, Leased: s.Leased, Deferred: s.Deferred, Lag: s.Lag, Oldest: timeOrNil(s.Oldest),
		DeadLetters: s.DeadLetters, Skips: s.Skips, Consumers: append([]subscriptions.WaitingConsumer{}, s.Consumers...), Partitions: append([]subscriptions.PartitionStatus{}, s.Partitions...), Instances: append([]subscriptions.InstanceStatus{}, s.Instances...),
	}
	return b
}

type nameInput struct {
	Name string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription: letters, digits, - and _, at most 60"`
}

type bodyInput struct {
	Name    string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription: letters, digits, - and _, at most 60"`
	RawBody []byte `contentType:"application/json"`
}

type putInput struct {
	Name string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription: letters, digits, - and _, at most 60"`
	httpapi.Creation
	RawBody []byte `contentType:"application/json"`
}

type deleteInput struct {
	Name string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription"`
	httpapi.Precondition
}

type putOutput struct {
	Status int
	ETag   string `header:"ETag" doc:"Version of the subscription"`
	Body   subscriptionBody
}

type subscriptionOutput struct {
	ETag string `header:"ETag" doc:"Version of the subscription"`
	Body subscriptionBody
}

func newSubscriptionOutput(s *subscriptions.Subscription) *subscriptionOutput {
	return &subscriptionOutput{httpapi.ETag(s.Version), newBody(s)}
}

// expectedVersion returns the version that a subscription has and that the headers permit to change: 0 is
// any, and subscriptions.Absent means that there is none.
func (s *Server) expectedVersion(ctx context.Context, name string, h httpapi.Creation) (int64, error) {
	p := invalidFields()
	match, ok := httpapi.ParseMatch(h.IfMatch)
	if !ok {
		p.at("header.If-Match", httpapi.ProblemMatch)
	}
	none, ok := httpapi.ParseMatch(h.IfNoneMatch)
	if !ok {
		p.at("header.If-None-Match", httpapi.ProblemMatch)
	}
	if len(p.Errors) > 0 {
		return 0, p
	}
	if h.IfMatch == "" && h.IfNoneMatch == "" {
		return 0, nil
	}
	sub, err := s.cfg.Service.Get(ctx, name)
	switch {
	case errors.Is(err, subscriptions.ErrNotFound) && h.IfMatch == "":
		return subscriptions.Absent, nil
	case err != nil:
		return 0, err
	case !match.Permits(sub.Version), h.IfNoneMatch != "" && none.Has(httpapi.ETag(sub.Version)):
		return 0, subscriptions.ErrVersion
	}
	return sub.Version, nil
}

type subscriptionsOutput struct {
	Body struct {
		Subscriptions []subscriptionBody `json:"subscriptions" doc:"Sorted by name"`
	}
}

type statusOutput struct{ Body statusBody }

type purgeOutput struct {
	Body struct {
		DryRun bool  `json:"dry_run"`
		Count  int64 `json:"count" doc:"Messages that were settled, or would be with dry_run"`
	}
}

type leasesInput struct {
	Name  string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription: letters, digits, - and _, at most 60"`
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	httpapi.Page
}

type leasesOutput struct {
	Body struct {
		Leases  []subscriptions.Lease `json:"leases" nullable:"false" doc:"The one received first at the beginning"`
		Next    string                `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
		Unknown []string              `json:"unknown,omitempty" nullable:"false" doc:"Instances that have not answered: their leases are missing"`
	}
}

type leaseInput struct {
	Name  string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription: letters, digits, - and _, at most 60"`
	Lease string `path:"lease" pattern:"^[a-zA-Z0-9._-]{1,249}(:[0-9]{1,20}){3}$" patternDescription:"the id of a lease, such as OrderCreated:0:17:3" doc:"id of the lease"`
}

type seekInput struct {
	To        seekText `json:"to" doc:"latest, earliest, a time in RFC 3339, or offset"`
	Topic     string   `json:"topic,omitempty" doc:"Only this topic"`
	Partition *int32   `json:"partition,omitempty" minimum:"0" doc:"Only this partition of the topic"`
	Offset    *int64   `json:"offset,omitempty" minimum:"0" doc:"Next offset, if to is offset; with topic and partition"`
}

type purgeInput struct {
	Until  *time.Time `json:"until,omitempty" doc:"Only records that were written before this time; default now"`
	DryRun bool       `json:"dry_run,omitempty" default:"true" doc:"true counts only; false removes the messages, which cannot be undone"`
}

// problems describes the error responses.
func (s *Server) problems(codes ...int) map[string]*huma.Response {
	codes = append(codes, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	return httpapi.Describe[problem](s.api, "SubscriptionProblem", codes...)
}

// path is that of a subscription.
const path = "/v1/subscriptions/{name}"

// registerResources adds the operations that create and delete subscriptions.
func (s *Server) registerResources() {
	puts := s.problems(400, 412, 413)
	httpapi.RegisterDecoding[subscriptionInput](s.api, false, s.needs(access.Admin, huma.Operation{
		OperationID: "put-subscription", Method: http.MethodPut, Path: path, Summary: "Create or replace a subscription",
		Description:  "201 if it creates, 200 if it replaces. Omitted members get their defaults, except paused, which is kept. The response of GET can be changed and sent back: its version, or its ETag as If-Match, refuses the change with 412 if another one came first.",
		MaxBodyBytes: maxBody, Responses: puts,
	}), s.put)
	// huma describes only one success response.
	created := *puts["200"]
	created.Description = "Created"
	puts["201"] = &created
	huma.Register(s.api, s.needs(access.Admin, huma.Operation{
		OperationID: "delete-subscription", Method: http.MethodDelete, Path: path, DefaultStatus: http.StatusNoContent, Summary: "Delete a subscription",
		Description: "Removes its positions and stored messages. Its dead letters stay.", Responses: s.problems(404, 412),
	}), s.remove)
}

// registerOperators adds the operations of operators. The ones that the API beside the
// console registers are audited with their bodies.
func (s *Server) registerOperators() {
	audited := func() map[string]any { return map[string]any{httpapi.AuditBody: true} }
	huma.Register(s.api, s.needs(access.Viewer, huma.Operation{
		OperationID: "list-subscriptions", Method: http.MethodGet, Path: "/v1/subscriptions", Summary: "List subscriptions", Responses: s.problems(),
	}), s.list)
	huma.Register(s.api, s.needs(access.Viewer, huma.Operation{
		OperationID: "get-subscription", Method: http.MethodGet, Path: path, Summary: "Get a subscription", Responses: s.problems(404),
	}), s.get)
	huma.Register(s.api, s.needs(access.Viewer, huma.Operation{
		OperationID: "get-subscription-status", Method: http.MethodGet, Path: path + "/status", Summary: "Get lag, leases and positions of a subscription", Responses: s.problems(404),
	}), s.status)
	huma.Register(s.api, s.needs(access.Viewer, huma.Operation{
		OperationID: "list-leases", Method: http.MethodGet, Path: path + "/leases", Summary: "List the messages in flight of a subscription",
		Description: "Their consumers, and when they received them. It contains no receipts.", Responses: s.problems(404),
	}), s.leases)
	huma.Register(s.api, s.needs(access.Operator, huma.Operation{
		OperationID: "end-lease", Method: http.MethodDelete, Path: path + "/leases/{lease}", DefaultStatus: http.StatusNoContent, Summary: "End a lease",
		Description: "The message can be delivered again immediately, and the delivery does not count. The consumer that has it receives lease-expired.",
		Responses:   s.problems(404, 409),
	}), s.endLease(subscriptions.ActionRelease))
	huma.Register(s.api, s.needs(access.Operator, huma.Operation{
		OperationID: "reject-lease", Method: http.MethodPost, Path: path + "/leases/{lease}/reject", DefaultStatus: http.StatusNoContent, Summary: "Make a message in flight a dead letter",
		Description: "For a message that its consumer does not get over. The consumer that has it receives lease-expired.",
		Responses:   s.problems(404, 409),
	}), s.endLease(subscriptions.ActionReject))
	huma.Register(s.api, s.needs(access.Operator, huma.Operation{
		OperationID: "pause-subscription", Method: http.MethodPost, Path: path + "/pause", DefaultStatus: http.StatusNoContent, Summary: "Pause deliveries",
		Description: "Leases that exist stay valid.", Responses: s.problems(404),
	}), s.change(s.cfg.Service.Pause))
	huma.Register(s.api, s.needs(access.Operator, huma.Operation{
		OperationID: "resume-subscription", Method: http.MethodPost, Path: path + "/resume", DefaultStatus: http.StatusNoContent, Summary: "Resume deliveries", Responses: s.problems(404),
	}), s.change(s.cfg.Service.Resume))
	huma.Register(s.api, s.needs(access.Operator, huma.Operation{
		OperationID: "acknowledge-skips", Method: http.MethodPost, Path: path + "/skips/acknowledge", DefaultStatus: http.StatusNoContent, Summary: "Take notice of records that were not delivered",
		Description: "Ends the problem on /readyz. The skips stay in the status and in the verification.", Responses: s.problems(404),
	}), s.change(s.cfg.Service.AcknowledgeSkips))
	httpapi.RegisterDecoding[seekInput](s.api, false, s.needs(access.Operator, huma.Operation{
		OperationID: "seek-subscription", Method: http.MethodPost, Path: path + "/seek", DefaultStatus: http.StatusNoContent, Summary: "Move the position of a subscription",
		Metadata:     audited(),
		Description:  "Ends the leases of the partitions concerned, removes their stored messages, and continues at the new position. An offset that the partition does not have is refused.",
		MaxBodyBytes: maxBody, Responses: s.problems(400, 404, 413),
	}), s.seek)
	httpapi.RegisterDecoding[purgeInput](s.api, true, s.needs(access.Admin, huma.Operation{
		OperationID: "purge-subscription", Method: http.MethodPost, Path: path + "/purge", Summary: "Remove waiting and stored messages",
		Metadata:     audited(),
		Description:  "Settles messages without delivering them. It only counts unless dry_run is false. Leased messages stay.",
		MaxBodyBytes: maxBody, Responses: s.problems(400, 404, 413),
	}), s.purge)
}

// principal returns the caller for the record of a change.
func principal(ctx context.Context) string {
	p, _ := access.From(ctx)
	return p.Name
}

func (s *Server) list(ctx context.Context, _ *struct{}) (*subscriptionsOutput, error) {
	all, err := s.cfg.Service.List(ctx)
	if err != nil {
		return nil, s.fail(ctx, "", err)
	}
	out := &subscriptionsOutput{}
	out.Body.Subscriptions = make([]subscriptionBody, len(all))
	for i := range all {
		out.Body.Subscriptions[i] = newBody(&all[i])
	}
	return out, nil
}

func (s *Server) get(ctx context.Context, in *nameInput) (*subscriptionOutput, error) {
	sub, err := s.cfg.Service.Get(ctx, in.Name)
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	return newSubscriptionOutput(&sub), nil
}

func (s *Server) put(ctx context.Context, in *putInput) (*putOutput, error) {
	sub, err := decodeSubscription(in.Name, in.RawBody)
	if err == nil {
		seen := sub.Version
		sub.Version, err = s.expectedVersion(ctx, in.Name, in.Creation)
		if errors.Is(err, subscriptions.ErrNotFound) || err == nil && seen != 0 && sub.Version != 0 && seen != sub.Version {
			err = subscriptions.ErrVersion
		}
		sub.Version = cmp.Or(sub.Version, seen)
	}
	if err == nil {
		sub, err = s.cfg.Service.Put(ctx, sub, principal(ctx))
	}
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	out := newSubscriptionOutput(&sub)
	status := http.StatusOK
	if sub.Created {
		status = http.StatusCreated
	}
	return &putOutput{status, out.ETag, out.Body}, nil
}

func (s *Server) remove(ctx context.Context, in *deleteInput) (*struct{}, error) {
	version, err := s.expectedVersion(ctx, in.Name, httpapi.Creation{Precondition: in.Precondition})
	if err == nil {
		err = s.cfg.Service.Delete(ctx, in.Name, version, principal(ctx))
	}
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	return nil, nil
}

func (s *Server) status(ctx context.Context, in *nameInput) (*statusOutput, error) {
	st, err := s.cfg.Service.Status(ctx, in.Name)
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	return &statusOutput{newStatusBody(&st)}, nil
}

func (s *Server) leases(ctx context.Context, in *leasesInput) (*leasesOutput, error) {
	page, err := s.cfg.Service.Leases(ctx, in.Name, in.Cursor, in.Limit)
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	out := &leasesOutput{}
	out.Body.Leases, out.Body.Next, out.Body.Unknown = append([]subscriptions.Lease{}, page.Leases...), in.Next(page.Next), page.Unknown
	return out, nil
}

// endLease returns the handler that ends a lease by an action.
func (s *Server) endLease(action subscriptions.Action) func(context.Context, *leaseInput) (*struct{}, error) {
	return func(ctx context.Context, in *leaseInput) (*struct{}, error) {
		lease, err := subscriptions.ParseLeaseID(in.Lease)
		if err != nil { // a number that is too large
			err = subscriptions.ErrLeaseEnded
		} else {
			err = s.cfg.Service.EndLease(ctx, in.Name, lease, action, principal(ctx))
		}
		if err != nil {
			return nil, s.fail(ctx, in.Name, err).unknown()
		}
		return nil, nil
	}
}

// change returns the handler of an operation without a body.
func (s *Server) change(do func(ctx context.Context, name, principal string) error) func(context.Context, *nameInput) (*struct{}, error) {
	return func(ctx context.Context, in *nameInput) (*struct{}, error) {
		if err := do(ctx, in.Name, principal(ctx)); err != nil {
			return nil, s.fail(ctx, in.Name, err).unknown()
		}
		return nil, nil
	}
}

func (s *Server) seek(ctx context.Context, in *bodyInput) (*struct{}, error) {
	to, err := decodeSeek(in.RawBody)
	if err == nil {
		err = s.cfg.Service.Seek(ctx, in.Name, to, principal(ctx))
	}
	if err != nil {
		return nil, s.fail(ctx, in.Name, err).unknown()
	}
	return nil, nil
}

func (s *Server) purge(ctx context.Context, in *bodyInput) (*purgeOutput, error) {
	p, err := decodePurge(in.RawBody)
	out := &purgeOutput{}
	if err == nil {
		out.Body.DryRun = p.DryRun
		out.Body.Count, err = s.cfg.Service.Purge(ctx, in.Name, p, principal(ctx))
	}
	if err != nil {
		return nil, s.fail(ctx, in.Name, err).unknown()
	}
	return out, nil
}

// fail maps an error, and logs it if the service is unavailable.
func (s *Server) fail(ctx context.Context, name string, err error) *problem {
	p := toProblem(ctx, name, err)
	if p.Status >= http.StatusInternalServerError {
		s.cfg.Logger.WarnContext(ctx, "request failed", "subscription", name, "status", strconv.Itoa(p.Status), "err", err)
	}
	return p
}
