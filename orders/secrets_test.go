package orders

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A response or the log must not repeat a secret in the wrong field.
func TestHTTP_AnswersRepeatNothingThatWasSent(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	h := withoutDatabase(t)
	order := "/v1/orders/" + exampleID
	for name, tt := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		location           string
	}{
		"wrong type":        {"POST", "/v1/orders", `{"currency":"EUR","country":"x","lines":"` + secret + `"}`, nil, 422, "body.lines"},
		"wrong value":       {"POST", "/v1/orders", `{"currency":"` + secret + `","country":"x","lines":[]}`, nil, 422, "body.currency"},
		"price":             {"POST", "/v1/orders", `{"currency":"EUR","country":"x","lines":[{"sku":"a","quantity":1,"unit_price":"` + secret + `"}]}`, nil, 422, "body.lines[0].unit_price"},
		"time":              {"POST", "/v1/orders", `{"placed_at":"` + secret + `"}`, nil, 422, "body.placed_at"},
		"no line":           {"POST", "/v1/orders", `{"lines":["` + secret + `"]}`, nil, 422, "body.lines[0]"},
		"address":           {"PATCH", order, `{"address":"` + secret + `"}`, []string{"If-Match", `"1"`}, 422, "body.address"},
		"reason":            {"POST", order + "/cancel", `{"reason":["` + secret + `"]}`, nil, 422, "body.reason"},
		"name of a member":  {"POST", "/v1/orders", `{"a ` + secret + `":1}`, nil, 422, "body.a…"},
		"where JSON breaks": {"POST", "/v1/orders", `{"a ` + secret + `":tru`, nil, 400, "body.a…"},
		"key":               {"POST", "/v1/orders", goodBody, []string{"Idempotency-Key", secret + "\xff"}, 422, "header.Idempotency-Key"},
		"version":           {"PATCH", order, `{"country":"x"}`, []string{"If-Match", secret}, 422, "header.If-Match"},
		"limit":             {"GET", "/v1/orders?customer_id=1&limit=" + secret, "", nil, 422, "query.limit"},
		"time in a query":   {"GET", "/v1/orders?customer_id=1&since=" + secret, "", nil, 422, "query.since"},
		"cursor":            {"GET", "/v1/orders?customer_id=1&cursor=" + secret, "", nil, 422, "query.cursor"},
		"id":                {"GET", "/v1/orders/" + secret, "", nil, http.StatusUnprocessableEntity, "path.id"},
	} {
		r := world.Request(t, h, tt.method, tt.path, tt.body, tt.header...)
		if r.Status != tt.status || strings.Contains(r.Text, secret) || !strings.Contains(strings.Join(r.Locations(), " "), tt.location) {
			t.Errorf("%s: %d %s, want %d with %s and without the sent value", name, r.Status, r.Text, tt.status, tt.location)
		}
	}
	if r := world.Request(t, h, "GET", "/openapi.json", ""); strings.Contains(r.Text, "The value at the given location") {
		t.Error("the description has values of errors")
	}
}
