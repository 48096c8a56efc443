package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// reactionBody is a rule of package react as reported by the processes that run it.
type reactionBody struct {
	Rule  string `json:"rule"`
	State string `json:"state" enum:"running,silent,stopped" doc:"running if it runs in any process; silent if a process that was not stopped no longer sends heartbeats"`
	// Definition is that of the latest heartbeat.
	delivery.Definition
	Instances []reactionInstance `json:"instances" doc:"The processes that run it or did so in the last 12 hours"`
}

type reactionInstance struct {
	Instance string    `json:"instance" doc:"Host and id of the process"`
	At       time.Time `json:"at" doc:"Time of the last heartbeat"`
	Silent   bool      `json:"silent" doc:"It has sent no heartbeat for 10 s and did not report that it stopped"`
	delivery.Progress
}

type reactionsOutput struct {
	Body struct {
		Rules []reactionBody `json:"rules" doc:"By name"`
	}
}

// reactionEndpoints list the rules of outbox react.
type reactionEndpoints struct {
	*operations
	store *delivery.Store
	now   func() time.Time
}

func (ep *reactionEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-reactions", Method: http.MethodGet, Path: "/v1/reactions", Summary: "List the rules of outbox react with their plugins and progress",
	}), ep.list)
}

func (ep *reactionEndpoints) list(ctx context.Context, _ *struct{}) (*reactionsOutput, error) {
	rules, err := ep.read(ctx)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(reactionsOutput)
	out.Body.Rules = rules
	return out, nil
}

func (ep *reactionEndpoints) read(ctx context.Context) ([]reactionBody, error) {
	reports, err := ep.store.Reports(ctx)
	if err != nil {
		return nil, err
	}
	// The latest heartbeat of a rule is first, because the definition is taken from it.
	slices.SortFunc(reports, func(a, b delivery.Report) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), b.At.Compare(a.At), strings.Compare(a.Instance, b.Instance))
	})
	out := []reactionBody{}
	for _, r := range reports {
		if len(out) == 0 || out[len(out)-1].Rule != r.Rule {
			out = append(out, reactionBody{Rule: r.Rule, State: delivery.Stopped, Definition: r.Definition})
		}
		rule := &out[len(out)-1]
		one := reactionInstance{Instance: r.Instance, At: r.At, Progress: r.Progress, Silent: r.State != delivery.Stopped && ep.now().Sub(r.At) > silentAfter}
		switch {
		case one.Silent && rule.State == delivery.Stopped:
			rule.State = "silent"
		case !one.Silent && one.State == delivery.Running:
			rule.State = delivery.Running
		}
		rule.Instances = append(rule.Instances, one)
	}
	for i := range out {
		slices.SortFunc(out[i].Instances, func(a, b reactionInstance) int { return strings.Compare(a.Instance, b.Instance) })
	}
	return out, nil
}

// sameReactions reports whether there was no heartbeat in between.
func sameReactions(a, b []reactionBody) bool {
	return slices.EqualFunc(a, b, func(x, y reactionBody) bool {
		return x.Rule == y.Rule && x.State == y.State && slices.EqualFunc(x.Instances, y.Instances, func(p, q reactionInstance) bool {
			return p.Instance == q.Instance && p.At.Equal(q.At) && p.Silent == q.Silent
		})
	})
}
