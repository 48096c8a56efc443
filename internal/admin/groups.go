package admin

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

const (
	// maxListed is the number of dead letters that are grouped with a filter, the latest
	// failures, and maxGrouped without one.
	maxListed, maxGrouped = 5000, 100_000
	// maxGroups is the maximum number of groups in a response.
	maxGroups = 200
)

type groupsInput struct {
	Status      []string  `query:"status" nullable:"false" enum:"pending,blocked,processing,failed,suspended,resolved,archived" doc:"Dead letters with this status; empty means open ones"`
	ErrorClass  string    `query:"error_class" maxLength:"200"`
	ErrorCode   string    `query:"error_code" maxLength:"200" doc:"Dead letters with this code of the broker or the database, such as NOT_LEADER_FOR_PARTITION"`
	EventType   string    `query:"event_type" maxLength:"500"`
	Table       string    `query:"table" maxLength:"500" doc:"Dead letters of this outbox table, keyspace.table, or of a subscription, subscription.NAME"`
	Tag         []string  `query:"tag" nullable:"false" maxItems:"16" doc:"Dead letters with all of these tags, separated by commas"`
	MinPriority int       `query:"min_priority" minimum:"-100" maximum:"100" default:"-100" doc:"Dead letters with this priority or a higher one"`
	Text        string    `query:"text" maxLength:"200" doc:"Dead letters whose error, event type or aggregate id contains this text, case-insensitive"`
	Since       time.Time `query:"since"`
	Until       time.Time `query:"until"`
}

// groupBody is a group of dead letters with equal failures.
type groupBody struct {
	ErrorClass string             `json:"error_class"`
	ErrorCode  string             `json:"error_code,omitempty"`
	ErrorText  string             `json:"error_text,omitempty" doc:"The message, with # in place of words with digits, such as ids, numbers and addresses"`
	EventType  string             `json:"event_type"`
	Topic      string             `json:"topic"`
	Count      int                `json:"count"`
	Blocks     int                `json:"blocks" doc:"Blocked events that wait behind these dead letters; they are in no group of their own"`
	ByStatus   map[dlq.Status]int `json:"by_status"`
	First      time.Time          `json:"first_failed_at"`
	Last       time.Time          `json:"last_failed_at"`
	Sample     string             `json:"sample_event_id" format:"uuid" doc:"The dead letter of the group with the latest failure"`

	sample  gocql.UUID
	sampled time.Time // first failure of sample
}

type groupsOutput struct {
	Body struct {
		Groups   []*groupBody `json:"groups" doc:"The one with the most events first, blocked ones included"`
		LookedAt int          `json:"looked_at" doc:"Number of grouped dead letters"`
		Sampled  bool         `json:"sampled" doc:"Older dead letters exist that were not read, so the counts are those of a sample"`
		Left     int          `json:"groups_left_out,omitempty" doc:"Number of groups that are not shown"`
	}
}

func (ep *deadLetterEndpoints) registerGroups() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-groups", Method: http.MethodGet, Path: "/v1/dead-letters/groups", Summary: "List groups of dead letters with equal failures",
	}), ep.groups)
}

// hasFilter reports whether a request has a filter, which the lists of dead letters evaluate.
func (in *groupsInput) hasFilter() bool {
	return len(in.Status)+len(in.Tag) > 0 || in.ErrorClass != "" || in.ErrorCode != "" || in.EventType != "" || in.Table != "" || in.Text != "" || in.MinPriority != dlq.MinPriority ||
		!in.Since.IsZero() || !in.Until.IsZero()
}

func (ep *deadLetterEndpoints) groups(ctx context.Context, in *groupsInput) (*groupsOutput, error) {
	if err := span(ctx, "query.", in.Since, in.Until); err != nil {
		return nil, err
	}
	if err := checkTags(ctx, "query.tag", in.Tag); err != nil {
		return nil, err
	}
	var all *grouping
	var err error
	if !in.hasFilter() {
		all, err = ep.open.Get(ctx)
	} else {
		err = ep.heavily(ctx, func() (err error) { all, err = ep.listGroups(ctx, in); return err })
	}
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(groupsOutput)
	b := &out.Body
	b.Groups, b.LookedAt, b.Sampled = all.groups, all.read, all.sampled
	if len(b.Groups) > maxGroups {
		b.Left = len(b.Groups) - maxGroups
		b.Groups = b.Groups[:maxGroups]
	}
	return out, nil
}

// listGroups groups the latest dead letters that match a filter.
func (ep *deadLetterEndpoints) listGroups(ctx context.Context, in *groupsInput) (*grouping, error) {
	f := dlq.Filter{Status: parseStatuses(in.Status), ErrorClass: in.ErrorClass, ErrorCode: in.ErrorCode, EventType: in.EventType, Since: in.Since, Until: in.Until, Table: in.Table, Tags: in.Tag, MinPriority: atLeast(in.MinPriority), Text: in.Text}
	if len(f.Status) == 0 {
		f.Status = dlq.OpenStatuses
	}
	found, more, err := ep.store.ListFirst(ctx, f, maxListed)
	if err != nil {
		return nil, err
	}
	all := newGrouping()
	all.sampled = more
	texts := make(map[gocql.UUID]dlq.ErrorText, len(found))
	for i := range found {
		e := found[i].Entry()
		all.add(&e)
		texts[e.EventID] = dlq.ErrorText{Code: found[i].ErrorCode, Text: found[i].ErrorText}
	}
	all.sort()
	all.name(texts)
	return all, nil
}

// readOpen groups all open dead letters by their cause.
func (ep *deadLetterEndpoints) readOpen(ctx context.Context) (*grouping, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	all := newGrouping()
	table, aggregate, head := "", "", (*groupBody)(nil)
	more, err := ep.store.AllChains(ctx, maxGrouped, func(of string, e dlq.ChainEntry) {
		if of != table || e.AggregateID != aggregate {
			table, aggregate, head = of, e.AggregateID, nil
		}
		if e.Status == dlq.Blocked && head != nil {
			all.read++
			head.Blocks++
			all.blocks[head.ErrorClass]++
			return
		}
		if g := all.add(&e); head == nil && !e.Unblocked && e.Status != dlq.Blocked {
			head = g
		}
	})
	if err != nil {
		return nil, err
	}
	all.sampled = more
	all.sort()
	texts, err := ep.store.ErrorTexts(ctx, all.samples())
	if err != nil {
		return nil, err
	}
	all.name(texts)
	return all, nil
}

// grouping are dead letters grouped by equal failures.
type grouping struct {
	groups  []*groupBody
	read    int
	sampled bool
	blocks  map[string]int64 // blocked events by the error class of the cause
	by      map[groupKey]*groupBody
}

type groupKey struct{ failure, class, event, topic string }

func newGrouping() *grouping {
	return &grouping{groups: []*groupBody{}, blocks: make(map[string]int64), by: make(map[groupKey]*groupBody)}
}

// add adds a dead letter to its group.
func (all *grouping) add(e *dlq.ChainEntry) *groupBody {
	all.read++
	k := groupKey{e.FailureKey, e.ErrorClass, e.EventType, e.Topic}
	g := all.by[k]
	if g == nil {
		g = &groupBody{ErrorClass: e.ErrorClass, EventType: e.EventType, Topic: e.Topic, ByStatus: make(map[dlq.Status]int), First: e.FirstFailedAt.UTC(), Last: e.LastFailedAt.UTC()}
		all.by[k] = g
		all.groups = append(all.groups, g)
	}
	g.Count++
	g.ByStatus[e.Status]++
	if first := e.FirstFailedAt.UTC(); !first.After(g.First) {
		g.First = first
	}
	// Of failures at one time it is that with the greatest id, so that each read has the same.
	if order := e.FirstFailedAt.Compare(g.sampled); g.sampled.IsZero() || order > 0 || order == 0 && bytes.Compare(e.EventID[:], g.sample[:]) > 0 {
		g.sample, g.sampled = e.EventID, e.FirstFailedAt
	}
	if last := e.LastFailedAt.UTC(); last.After(g.Last) {
		g.Last = last
	}
	return g
}

// sort sorts the groups, the one with the most events first.
func (all *grouping) sort() {
	slices.SortStableFunc(all.groups, func(a, b *groupBody) int {
		return cmp.Or(cmp.Compare(b.Count+b.Blocks, a.Count+a.Blocks), cmp.Compare(a.ErrorClass, b.ErrorClass), cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Topic, b.Topic))
	})
}

// responseGroups are the groups of a response.
func (all *grouping) responseGroups() []*groupBody {
	return all.groups[:min(len(all.groups), maxGroups)]
}

// samples are the dead letters whose errors the groups of the response show.
func (all *grouping) samples() []gocql.UUID {
	ids := make([]gocql.UUID, len(all.responseGroups()))
	for i, g := range all.responseGroups() {
		ids[i] = g.sample
	}
	return ids
}

// name sets the error of each group to that of its sample.
func (all *grouping) name(texts map[gocql.UUID]dlq.ErrorText) {
	for _, g := range all.responseGroups() {
		g.Sample = g.sample.String()
		g.ErrorCode, g.ErrorText = texts[g.sample].Code, withoutNumbers(texts[g.sample].Text)
	}
}

// withoutNumbers returns a message as dlq.FailureKey compares it.
func withoutNumbers(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		if strings.ContainsAny(w, "0123456789") {
			words[i] = "#"
		}
	}
	return strings.Join(words, " ")
}
