package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cached"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

type meOutput struct {
	Body struct {
		Name string      `json:"name"`
		Role access.Role `json:"role" enum:"viewer,operator,admin"`
	}
}

// The inputs repeat the members of the filter, because huma ignores unexported embedded
// types.

type listInput struct {
	Status      []string  `query:"status" nullable:"false" enum:"pending,blocked,processing,failed,suspended,resolved,archived" doc:"Dead letters with this status; several separated by commas"`
	ErrorClass  string    `query:"error_class" maxLength:"200" doc:"Dead letters of this error class, such as record_too_large"`
	ErrorCode   string    `query:"error_code" maxLength:"200" doc:"Dead letters with this code of the broker or the database, such as NOT_LEADER_FOR_PARTITION"`
	Outcome     string    `query:"outcome" enum:"replayed,redirected,found,discarded,unblocked,by_hand" doc:"Dead letters that were resolved in this way; replayed, redirected, found and unblocked ones were published"`
	EventType   string    `query:"event_type" maxLength:"500"`
	Aggregate   string    `query:"aggregate_id" maxLength:"1000" doc:"Dead letters of this aggregate id"`
	Table       string    `query:"table" maxLength:"500" doc:"Dead letters of this outbox table, keyspace.table, or of a subscription, subscription.NAME"`
	Tag         []string  `query:"tag" nullable:"false" maxItems:"16" doc:"Dead letters with all of these tags, separated by commas"`
	MinPriority int       `query:"min_priority" minimum:"-100" maximum:"100" default:"-100" doc:"Dead letters with this priority or a higher one"`
	Text        string    `query:"text" maxLength:"200" doc:"Dead letters whose error, event type or aggregate id contains this text, case-insensitive"`
	Since       time.Time `query:"since" doc:"Dead letters whose first failure was at this time or later (RFC 3339)"`
	Until       time.Time `query:"until" doc:"Dead letters whose first failure was before this time"`
	WithPayload bool      `query:"with_payload" doc:"Add the payloads, as the events had them. A page ends after about 8 MiB of payloads, and is then shorter than limit."`
	Limit       int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	httpapi.Page
}

type deadLettersBody struct {
	DeadLetters []ListedDeadLetter `json:"dead_letters" doc:"Latest failure first"`
	Next        string             `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
}

type listOutput struct{ Body deadLettersBody }

type deadLetterInput struct {
	EventID string `path:"event_id" format:"uuid" doc:"Id of the event, or of the edited event that is published in its place"`
}

type deadLetterOutput struct {
	ETag string `header:"ETag" doc:"Version of the dead letter"`
	Body DeadLetterBody
}

type statsOutput struct{ Body StatsBody }

// StatsBody contains the counts of dead letters.
type StatsBody struct {
	At          time.Time            `json:"at" doc:"Time of the count"`
	Total       int64                `json:"total"`
	Open        int64                `json:"open"`
	ByStatus    map[dlq.Status]int64 `json:"by_status"`
	OpenByClass map[string]int64     `json:"open_by_error_class"`
	OpenByType  map[string]int64     `json:"open_by_event_type"`
	Causes      []CauseBody          `json:"causes" nullable:"false" doc:"Open dead letters by cause, the one with the most events first: blocked ones count for the one that they wait behind"`
	Oldest      *time.Time           `json:"oldest,omitempty" doc:"First failure of the oldest open dead letter"`
}

// CauseBody is an error class with its consequences.
type CauseBody struct {
	ErrorClass string `json:"error_class"`
	Count      int64  `json:"count" doc:"Open dead letters"`
	Blocks     int64  `json:"blocks" doc:"Blocked events that wait behind them"`
}

// deadLetterEndpoints read dead letters: one, many, their counts and their groups.
type deadLetterEndpoints struct {
	*operations
	store    *dlq.Store
	registry *registry.Registry
	stats    *cached.Value[StatsBody]
	open     *cached.Value[*grouping] // of all open dead letters
	tables   []string                 // of the configuration
}

func newDeadLetterEndpoints(ops *operations, cfg *Config) *deadLetterEndpoints {
	ep := &deadLetterEndpoints{operations: ops, store: cfg.DeadLetters, registry: cfg.Registry}
	ep.stats = cached.New(cfg.LiveInterval, ep.readStats)
	ep.open = cached.New(groupsKept, ep.readOpen)
	for _, t := range cfg.Tables {
		ep.tables = append(ep.tables, t.String())
	}
	return ep
}

func (ep *deadLetterEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-me", Method: http.MethodGet, Path: "/v1/me", Summary: "Get the user and role of the token",
	}), me)
	huma.Register(ep.api, ep.describe(access.Viewer, access.OrConsumer(huma.Operation{
		OperationID: "list-dead-letters", Method: http.MethodGet, Path: "/v1/dead-letters", Summary: "List dead letters",
		Description: "A consumer lists those of a subscription of its role: table is subscription.NAME.",
	})), ep.list)
	huma.Register(ep.api, ep.describe(access.Viewer, access.OrConsumer(huma.Operation{
		OperationID: "get-dead-letter", Method: http.MethodGet, Path: "/v1/dead-letters/{event_id}", Summary: "Get a dead letter with its history",
		Description: "A consumer reads those of the subscriptions of its role; others do not exist for it.",
	}), 404), ep.deadLetter)
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-stats", Method: http.MethodGet, Path: "/v1/dead-letters/stats", Summary: "Count dead letters",
	}), ep.getStats)
}

func me(ctx context.Context, _ *struct{}) (*meOutput, error) {
	p, _ := access.From(ctx)
	out := new(meOutput)
	out.Body.Name, out.Body.Role = p.Name, p.Role
	return out, nil
}

func parseStatuses(names []string) (out []dlq.Status) {
	for _, n := range names {
		if st := dlq.Status(n); !slices.Contains(out, st) {
			out = append(out, st)
		}
	}
	return out
}

// span checks two times of a request.
func span(ctx context.Context, prefix string, since, until time.Time) error {
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return invalid(ctx, prefix+"since", "must be before until")
	}
	return nil
}

// atLeast returns the filter for a least priority; nil for the least of all.
func atLeast(priority int) *int {
	if priority == dlq.MinPriority {
		return nil
	}
	return &priority
}

func (ep *deadLetterEndpoints) list(ctx context.Context, in *listInput) (*listOutput, error) {
	if err := permitTable(ctx, in.Table); err != nil {
		return nil, newProblem(ctx, httpapi.TypeForbidden, err.Error())
	}
	f := dlq.Filter{
		Status: parseStatuses(in.Status), ErrorClass: in.ErrorClass, EventType: in.EventType, Aggregate: in.Aggregate, Since: in.Since, Until: in.Until,
		ErrorCode: in.ErrorCode, Outcome: dlq.OutcomeKind(in.Outcome), Table: in.Table, Tags: in.Tag, MinPriority: atLeast(in.MinPriority), Text: in.Text,
	}
	if err := checkTags(ctx, "query.tag", in.Tag); err != nil {
		return nil, err
	}
	if err := span(ctx, "query.", in.Since, in.Until); err != nil {
		return nil, err
	}
	if in.Cursor != "" {
		if err := readPosition(ctx, in.Cursor, &f.After); err != nil {
			return nil, err
		}
		if f.After.FirstFailedAt.IsZero() {
			return nil, invalid(ctx, "query.cursor", httpapi.ProblemCursor)
		}
	}
	var deadLetters []dlq.DeadLetter
	more, holds := false, make(holds)
	err := ep.heavily(ctx, func() error {
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() (err error) { deadLetters, more, err = ep.store.ListFirst(gctx, f, in.Limit); return err })
		g.Go(func() error { return holds.read(gctx, ep.store, ep.tables) })
		return g.Wait()
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	summaries, err := ep.summaries(ctx, deadLetters, holds)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(listOutput)
	out.Body.DeadLetters = make([]ListedDeadLetter, len(summaries))
	for i := range summaries {
		text := []rune(deadLetters[i].ErrorText)
		summaries[i].ErrorExcerpt = string(text[:min(len(text), maxExcerpt)])
		out.Body.DeadLetters[i].Summary = summaries[i]
	}
	if in.WithPayload {
		n, err := ep.addPayloads(ctx, deadLetters, out.Body.DeadLetters)
		if err != nil {
			return nil, ep.toProblem(ctx, err, false)
		}
		more = more || n < len(deadLetters)
		deadLetters, out.Body.DeadLetters = deadLetters[:n], out.Body.DeadLetters[:n]
	}
	if more {
		out.Body.Next = in.Next(formatPosition(deadLetters[len(deadLetters)-1].Position()))
	}
	return out, nil
}

// listedPayloads bounds the payloads of a page, in bytes.
const listedPayloads = 8 << 20

// addPayloads adds the payloads of the first dead letters of a page, and returns their number.
func (ep *deadLetterEndpoints) addPayloads(ctx context.Context, deadLetters []dlq.DeadLetter, out []ListedDeadLetter) (n int, err error) {
	ids := make([]gocql.UUID, len(deadLetters))
	for i := range deadLetters {
		ids[i] = deadLetters[i].EventID
	}
	var payloads map[gocql.UUID]dlq.Payload
	err = ep.heavily(ctx, func() error { payloads, n, err = ep.store.Payloads(ctx, ids, listedPayloads); return err })
	if err != nil {
		return 0, err
	}
	for i := range n {
		p := payloads[ids[i]]
		out[i].ContentType = p.ContentType
		if out[i].PayloadText, out[i].PayloadBase64 = forms(p.Bytes); out[i].PayloadText != nil {
			out[i].PayloadBase64 = nil
		}
	}
	return n, nil
}

// holds are the holds of relays by table.
type holds map[string][]dlq.Hold

// read reads the holds of tables concurrently.
func (h holds) read(ctx context.Context, store *dlq.Store, tables []string) error {
	found := make([][]dlq.Hold, len(tables))
	g, gctx := errgroup.WithContext(ctx)
	for i, table := range tables {
		g.Go(func() (err error) { found[i], err = store.Holds(gctx, table); return err })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, table := range tables {
		h[table] = found[i]
	}
	return nil
}

// summaries returns dead letters as in lists, with the conditions that they wait for. It reads the holds
// that are not known.
func (ep *deadLetterEndpoints) summaries(ctx context.Context, deadLetters []dlq.DeadLetter, known holds) ([]Summary, error) {
	var unknown []string
	for i := range deadLetters {
		l := &deadLetters[i]
		_, ofSubscription := dlq.ParseSubscription(l.Table) // which no relay holds
		if _, ok := known[l.Table]; !ok && !ofSubscription && l.Status == dlq.Pending && !slices.Contains(unknown, l.Table) {
			unknown = append(unknown, l.Table)
		}
	}
	if err := known.read(ctx, ep.store, unknown); err != nil {
		return nil, err
	}
	out := make([]Summary, 0, len(deadLetters))
	for i := range deadLetters {
		l := &deadLetters[i]
		out = append(out, newSummary(l, known[l.Table], time.Now()))
	}
	return out, nil
}

// maxExcerpt bounds the text of an error in lists, in characters.
const maxExcerpt = 200

func (ep *deadLetterEndpoints) deadLetter(ctx context.Context, in *deadLetterInput) (*deadLetterOutput, error) {
	id, err := eventID(ctx, "path.event_id", in.EventID)
	if err != nil {
		return nil, err
	}
	out, err := ep.complete(ctx, id)
	if err == nil && permitTable(ctx, out.Body.Table) != nil {
		err = dlq.ErrNotFound
	}
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return out, nil
}

// permitTable returns an error if the caller is a consumer and a table is not that of one of its
// subscriptions.
func permitTable(ctx context.Context, table string) error {
	p, _ := access.From(ctx)
	if p.Role != access.Consumer {
		return nil
	}
	name, ok := strings.CutPrefix(table, "subscription.")
	if !ok {
		return fmt.Errorf("%s reads the dead letters of its subscriptions only: use table=subscription.NAME, or --table subscription.NAME", p.Name)
	}
	return access.PermitConsume(p, name)
}

// read returns the dead letter of an event, or of the event that an edit replaces.
func (ep *deadLetterEndpoints) read(ctx context.Context, id gocql.UUID) (dlq.DeadLetter, error) {
	l, err := ep.store.Read(ctx, id)
	if !errors.Is(err, dlq.ErrNotFound) {
		return l, err
	}
	original, err := ep.store.FindOriginal(ctx, id)
	if err != nil {
		return l, err
	}
	return ep.store.Read(ctx, original)
}

// complete returns a dead letter with its history and its position in its aggregate.
func (ep *deadLetterEndpoints) complete(ctx context.Context, id gocql.UUID) (*deadLetterOutput, error) {
	l, err := ep.read(ctx, id)
	if err != nil {
		return nil, err
	}
	var some []Summary
	var history []dlq.Change
	var chain []dlq.ChainEntry
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { some, err = ep.summaries(gctx, []dlq.DeadLetter{l}, make(holds)); return err })
	g.Go(func() (err error) {
		if history, err = ep.store.History(gctx, l.EventID); errors.Is(err, dlq.ErrNotFound) {
			err = nil
		}
		return err
	})
	if l.Status.Open() {
		g.Go(func() (err error) { chain, err = ep.store.Chain(gctx, l.Table, l.AggregateID); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	b := DeadLetterBody{
		Summary: some[0], ContentType: l.ContentType, Headers: l.Headers, ErrorCode: l.ErrorCode, ErrorText: l.ErrorText,
		ErrorChain: l.ErrorChain, Metadata: l.Metadata, Raw: l.Raw, Outcome: newOutcomeBody(&l.Outcome), ResolvedAt: when(l.ResolvedAt), ArchiveObject: l.Archive,
		History: []dlq.Change{}, Followers: []Follower{}, May: []dlq.Action{},
	}
	if b.Headers == nil {
		b.Headers = map[string]string{}
	}
	if l.WrittenAt != 0 {
		b.WrittenAt = when(time.UnixMicro(l.WrittenAt))
	}
	b.PayloadText, b.PayloadBase64 = forms(l.Payload)
	b.PayloadBytes, b.PayloadJSON = len(l.Payload), ep.decodePayload(ctx, l.Payload)
	if l.EditedID != (gocql.UUID{}) {
		b.EditedTo, b.Edit = l.EditedID.String(), newContentBody(l.Edit)
	}
	if len(history) > 0 {
		b.History = history
	}
	if l.Status.Open() {
		b.chain(&l, chain)
	}
	for _, a := range append(actions[:len(actions):len(actions)], actionKind{action: dlq.ActionEdit}, actionKind{action: dlq.ActionRedirect}) {
		if ep.store.Check(a.action, &l) == nil {
			b.May = append(b.May, a.action)
		}
	}
	return &deadLetterOutput{ETag: etag(l.Version), Body: b}, nil
}

func (ep *deadLetterEndpoints) getStats(ctx context.Context, _ *struct{}) (*statsOutput, error) {
	b, err := ep.stats.Get(ctx)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return &statsOutput{b}, nil
}

const (
	// statsTimeout bounds a count of all dead letters.
	statsTimeout = 30 * time.Second
	// groupsKept is for how long all open dead letters are not grouped again, which reads them
	// all, and blocksPatience bounds the wait of their counts for it.
	groupsKept     = 5 * time.Second
	blocksPatience = time.Second
)

func (ep *deadLetterEndpoints) readStats(ctx context.Context) (StatsBody, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	b := StatsBody{At: time.Now().UTC()}
	st, err := ep.store.Stats(ctx)
	if err != nil {
		return b, err
	}
	b.Open, b.ByStatus, b.OpenByClass, b.OpenByType, b.Oldest = st.Open, st.ByStatus, st.OpenByClass, st.OpenByType, when(st.Oldest)
	for _, n := range st.ByStatus {
		b.Total += n
	}
	var blocks map[string]int64
	if st.ByStatus[dlq.Blocked] > 0 {
		waiting, cancel := context.WithTimeout(ctx, blocksPatience)
		defer cancel()
		if all, err := ep.open.Get(waiting); err == nil || all != nil { // otherwise blocked ones are a cause
			blocks = all.blocks
		}
	}
	b.Causes = newCauses(st.OpenByClass, blocks)
	return b, nil
}

// classBehind is the error class of blocked events.
const classBehind = "behind"

// newCauses returns error classes, blocked events with the class of the dead letter that they
// wait behind.
func newCauses(open, blocks map[string]int64) []CauseBody {
	out := []CauseBody{}
	behind := open[classBehind]
	for _, class := range slices.Sorted(maps.Keys(open)) {
		n := open[class]
		if class == classBehind || n == 0 {
			continue
		}
		// Blocks are counted less often.
		blocked := min(blocks[class], behind)
		behind -= blocked
		out = append(out, CauseBody{class, n, blocked})
	}
	if behind > 0 {
		out = append(out, CauseBody{ErrorClass: classBehind, Count: behind})
	}
	slices.SortFunc(out, func(a, b CauseBody) int {
		return cmp.Or(cmp.Compare(b.Count+b.Blocks, a.Count+a.Blocks), cmp.Compare(a.ErrorClass, b.ErrorClass))
	})
	return out
}
