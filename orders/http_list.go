package orders

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

type listInput struct {
	CustomerID string    `query:"customer_id" required:"true" minLength:"1" maxLength:"64" doc:"Customer of the orders; orders of guests are not listed"`
	Since      time.Time `query:"since" doc:"Placed at this time or later"`
	Until      time.Time `query:"until" doc:"Placed before this time"`
	Limit      int       `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"Orders of a page, at most"`
	httpapi.Page
}

// Resolve rejects empty parameters: huma treats them as absent, so the list
// would be unbounded. An empty cursor is that of the first page.
func (in *listInput) Resolve(ctx huma.Context) []error {
	errs := in.Page.Resolve(ctx)
	u := ctx.URL()
	for name, values := range u.Query() {
		if name != "cursor" && slices.Contains(values, "") {
			errs = append(errs, &huma.ErrorDetail{Location: "query." + jsonform.Clip(name), Message: "must not be empty; omit it"})
		}
	}
	return errs
}

// listedOrder is an order in a list.
type listedOrder struct {
	Summary
	Links *links `json:"links"`
}

type listOutput struct {
	Body listBody
}

type listBody struct {
	Orders []listedOrder `json:"orders" nullable:"false"`
	Next   string        `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
	Links  listLinks     `json:"links"`
}

type listLinks struct {
	Next string `json:"next,omitempty" format:"uri-reference" doc:"Next page; absent on the last page"`
}

func (a *api) list(ctx context.Context, in *listInput) (*listOutput, error) {
	q := ListQuery{CustomerID: in.CustomerID, Limit: in.Limit, Cursor: in.Cursor}
	if !in.Since.IsZero() {
		q.Since = &in.Since
	}
	if !in.Until.IsZero() {
		q.Until = &in.Until
	}
	p, err := a.service.List(ctx, q)
	if err != nil {
		return nil, a.fail(ctx, "list", err, gocql.UUID{}, false)
	}
	p.Next = in.Next(p.Next)
	out := &listOutput{Body: listBody{Orders: make([]listedOrder, len(p.Orders)), Next: p.Next}}
	for i, o := range p.Orders {
		out.Body.Orders[i] = listedOrder{o, linksTo(o.ID)}
	}
	if p.Next != "" {
		v := url.Values{"customer_id": {in.CustomerID}, "limit": {strconv.Itoa(in.Limit)}, "cursor": {p.Next}}
		if q.Since != nil {
			v.Set("since", in.Since.Format(time.RFC3339Nano))
		}
		if q.Until != nil {
			v.Set("until", in.Until.Format(time.RFC3339Nano))
		}
		out.Body.Links.Next = "/v1/orders?" + v.Encode()
	}
	return out, nil
}
