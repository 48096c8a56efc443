package admin

import (
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
	// maxGrouped is the number of dead letters that are grouped, the latest failures.
	maxGrouped = 5000
	// maxGroups is the maximum number of groups in a response.
	maxGroups = 200
)

type groupsInput struct {
	Status      []string  `query:"status" nullable:"false" enum:"pending,blocked,processing,failed,suspended,resolved,archived" doc:"Dead letters with this status; empty means open ones"`
	ErrorClass  string    `query:"error_class" maxLength:"200"`
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
	ByStatus   map[dlq.Status]int `json:"by_status"`
	First      time.Time          `json:"first_failed_at"`
	Last       time.Time          `json:"last_failed_at"`
	Sample     string             `json:"sample_event_id" format:"uuid" doc:"The dead letter of the group with the latest failure"`

	sample gocql.UUID
}

type groupsOutput struct {
	Body struct {
		Groups   []*groupBody `json:"groups" doc:"Largest first"`
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

type groupKey struct{ failure, class, event, topic string }

func (ep *deadLetterEndpoints) groups(ctx context.Context, in *groupsInput) (*groupsOutput, error) {
	if err := span(ctx, "query.", in.Since, in.Until); err != nil {
		return nil, err
	}
	f := dlq.Filter{Status: statusesOf(in.Status), ErrorClass: in.ErrorClass, EventType: in.EventType, Since: in.Since, Until: in.Until, Table: in.Table, Tags: in.Tag, MinPriority: atLeast(in.MinPriority), Text: in.Text}
	if err := checkTags(ctx, "query.tag", in.Tag); err != nil {
		return nil, err
	}
	if len(f.Status) == 0 {
		f.Status = dlq.OpenStatuses
	}
	out := new(groupsOutput)
	b := &out.Body
	b.Groups = []*groupBody{}
	by := make(map[groupKey]*groupBody)
	err := ep.heavily(ctx, func() error {
		err := ep.store.List(ctx, f, func(l *dlq.DeadLetter) error {
			if b.LookedAt == maxGrouped {
				b.Sampled = true
				return dlq.ErrStop
			}
			b.LookedAt++
			k := groupKey{l.FailureKey, l.ErrorClass, l.EventType, l.Topic}
			g := by[k]
			if g == nil {
				g = &groupBody{ErrorClass: l.ErrorClass, EventType: l.EventType, Topic: l.Topic, ByStatus: make(map[dlq.Status]int), Last: l.FirstFailedAt.UTC(), sample: l.EventID}
				by[k] = g
				b.Groups = append(b.Groups, g)
			}
			g.Count++
			g.ByStatus[l.Status]++
			g.First = l.FirstFailedAt.UTC() // they come from new to old
			if l.LastFailedAt.After(g.Last) {
				g.Last = l.LastFailedAt.UTC()
			}
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(b.Groups, func(a, b *groupBody) int { return b.Count - a.Count })
		if len(b.Groups) > maxGroups {
			b.Left = len(b.Groups) - maxGroups
			b.Groups = b.Groups[:maxGroups]
		}
		return ep.name(ctx, b.Groups)
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return out, nil
}

// name sets the error of each group to that of its sample.
func (ep *deadLetterEndpoints) name(ctx context.Context, groups []*groupBody) error {
	ids := make([]gocql.UUID, len(groups))
	for i, g := range groups {
		ids[i] = g.sample
	}
	texts, err := ep.store.ErrorTexts(ctx, ids)
	if err != nil {
		return err
	}
	for _, g := range groups {
		g.Sample = g.sample.String()
		g.ErrorCode, g.ErrorText = texts[g.sample].Code, withoutNumbers(texts[g.sample].Text)
	}
	return nil
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
