package orders

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/test/hostile"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// bytesPerByte bounds the allocations per byte of a body. A list of the maximum
// number of invalid lines is the worst case.
const bytesPerByte = 16

// orderWith is a good order but for its first member, and padded to no size.
func orderWith(member string) string {
	return `{` + member + `,"country":"EIRE","currency":"EUR","lines":[{"sku":"a","quantity":1,"unit_price":"1"}]}`
}

// lineWith is a valid order except for a member of its line.
func lineWith(member string) string {
	return `{"country":"EIRE","currency":"EUR","lines":[{"sku":"a",` + member + `}]}`
}

// largest is the size of the largest accepted body.
const largest = MaxBodyBytes - 1

// fillBody repeats item between open and end up to the size of the largest body.
func fillBody(open, item, end string) string {
	n := (largest - len(open) - len(end) - len(item)) / (len(item) + 1)
	return open + strings.Repeat(item+",", n) + item + end
}

// hostileBodies are bodies for creating an order; at is the field that the answer names.
var hostileBodies = []struct {
	name, body string
	status     int
	at         string
}{
	{"lists in lists, closed", strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), 422, "body.0[0][0]"},
	{"lists in lists, open", strings.Repeat("[", largest), 422, "body.0[0][0]"},
	{"objects in objects", strings.Repeat(`{"a":`, largest/5), 422, "body.a.a.a"},
	{"nested in an unknown field", orderWith(`"x":` + strings.Repeat("[", 9) + strings.Repeat("]", 9)), 422, "body.x[0][0]"},
	{"nested in a price", lineWith(`"quantity":1,"unit_price":` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000)), 422, "body.lines[0].unit_price[0]"},
	{"a huge exponent as price", lineWith(`"quantity":1,"unit_price":1e999999`), 422, "body.lines[0].unit_price"},
	{"a huge exponent in text as price", lineWith(`"quantity":1,"unit_price":"1e999999"`), 422, "body.lines[0].unit_price"},
	{"a tiny exponent as price", lineWith(`"quantity":1,"unit_price":1e-999999`), 422, "body.lines[0].unit_price"},
	{"many digits as price", lineWith(`"quantity":1,"unit_price":` + strings.Repeat("9", 250_000)), 422, "body.lines[0].unit_price"},
	{"many places as price", lineWith(`"quantity":1,"unit_price":0.` + strings.Repeat("0", 250_000) + "1"), 422, "body.lines[0].unit_price"},
	{"a million digits", lineWith(`"quantity":1,"unit_price":` + strings.Repeat("9", 1_000_000)), 413, ""},
	{"a huge exponent as quantity", lineWith(`"unit_price":"1","quantity":1e999999`), 422, "body.lines[0].quantity"},
	{"many digits as quantity", lineWith(`"unit_price":"1","quantity":` + strings.Repeat("9", 250_000)), 422, "body.lines[0].quantity"},
	{"many digits as time", orderWith(`"placed_at":` + strings.Repeat("9", 250_000)), 422, "body.placed_at"},
	{"a name twice", orderWith(`"country":"Oman"`), 422, "body.country"},
	{"one name over and over", fillBody(`{`, `"country":"x"`, `}`), 422, "body.country"},
	{"a long name twice", `{"` + strings.Repeat("n", 100_000) + `":1,"` + strings.Repeat("n", 100_000) + `":1}`, 422, "body.nnn"},
	{"a name in other letters", orderWith(`"COUNTRY":"Oman"`), 422, "body.COUNTRY"},
	{"endless members", `{` + hostile.Members(25_000) + `}`, 422, "body"},
	{"endless members in a line", lineWith(hostile.Members(25_000)), 422, "body.lines[0]"},
	{"endless empty lines", fillBody(`{"lines":[`, `{}`, `]}`), 422, "body.lines"},
	{"endless null lines", fillBody(`{"lines":[`, `null`, `]}`), 422, "body.lines"},
	{"endless valid lines", fillBody(`{"country":"EIRE","currency":"EUR","lines":[`, `{"sku":"a","quantity":1,"unit_price":"1"}`, `]}`), 422, "body.lines"},
	{"endless items elsewhere", fillBody(`{"invoice":[`, `0`, `]}`), 422, "body.invoice"},
	{"the most lines, all unknown", `{"lines":[` + strings.Repeat(`{`+hostile.Members(28)+`},`, MaxLines-1) + `{}]}`, 422, "body.lines[0].0"},
	{"the most lines, all wrong", `{"lines":[` + strings.Repeat(`{"sku":{},"description":[],"quantity":"","unit_price":{}},`, MaxLines-1) + `{}]}`, 422, "body.lines[0].sku"},
	{"no UTF-8 in a value", orderWith("\"invoice\":\"\xff\xfe\""), 400, "body.invoice"},
	{"no UTF-8 in a name", orderWith("\"\xff\":1"), 400, "body"},
	{"overlong UTF-8", orderWith("\"invoice\":\"\xc0\xaf\""), 400, "body.invoice"},
	{"a UTF-8 surrogate", orderWith("\"invoice\":\"\xed\xa0\x80\""), 400, "body.invoice"},
	{"half an escaped surrogate", orderWith(`"invoice":"\ud800"`), 400, "body.invoice"},
	{"UTF-16", "\xff\xfe{\x00}\x00", 400, "body"},
	{"a byte order mark", "\xef\xbb\xbf{}", 400, "body"},
	{"endless escapes", orderWith(`"invoice":"` + strings.Repeat(`\u0061`, 40_000) + `"`), 422, "body.invoice"},
	{"endless escaped backslashes", orderWith(`"invoice":"` + strings.Repeat(`\\`, 120_000) + `"`), 422, "body.invoice"},
	{"JSON in a text in a text", orderWith(`"invoice":` + quoteTimes(15)), 422, "body.invoice"},
	{"escaped control characters", orderWith(`"invoice":"\u0000\u001b"`), 422, "body.invoice"},
	{"an unterminated string", `{"country":"` + strings.Repeat("x", 200_000), 400, "body"},
	{"endless white space", strings.Repeat(" ", largest), 400, "body"},
	{"zeros", strings.Repeat("\x00", largest), 400, "body"},
}

// quoteTimes is a text that was made a JSON text n times; each doubles the escapes.
func quoteTimes(n int) string {
	s := `"`
	for range n {
		s = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	return s
}

// The response to a hostile body is short and names the problem, and the memory is
// proportional to its size. This API has no database, so an accepted body would be
// a 5xx.
//
//nolint:paralleltest // it counts the allocations of the process
func TestHTTP_HostileBodiesAreCheapAndNamed(t *testing.T) {
	h := withoutDatabase(t)
	for _, tt := range hostileBodies {
		t.Run(tt.name, func(t *testing.T) {
			hostile.Check(t, tt.body, tt.status, tt.at, bytesPerByte, func() hostile.Answer {
				r := world.Request(t, h, "POST", "/v1/orders", tt.body)
				return hostile.Answer{Status: r.Status, Text: r.Text, Locations: r.Locations()}
			})
		})
	}
}

// The bodies of changes are checked in the same way.
func TestHTTP_HostileBodiesOfChanges(t *testing.T) {
	t.Parallel()
	h := withoutDatabase(t)
	order := "/v1/orders/" + gocql.UUID{1}.String()
	for _, to := range [][2]string{{"PATCH", order}, {"POST", order + "/confirm"}, {"POST", order + "/ship"}, {"POST", order + "/cancel"}} {
		for _, tt := range hostileBodies {
			if strings.TrimSpace(tt.body) == "" && to[0] == "POST" {
				continue // a blank body is a good one here
			}
			r := world.Request(t, h, to[0], to[1], tt.body, "If-Match", `"1"`)
			switch {
			case r.Status/100 != 4:
				t.Errorf("%s %s with %s: status %d: %s", to[0], to[1], tt.name, r.Status, jsonform.Clip(r.Text))
			case r.Status != http.StatusRequestEntityTooLarge && len(r.Locations()) == 0:
				t.Errorf("%s %s with %s: no field is named: %s", to[0], to[1], tt.name, jsonform.Clip(r.Text))
			}
		}
	}
}

// For any body of any request: no panic, each refusal has a location, and
// memory is proportional to the size.
func FuzzHostileBody(f *testing.F) {
	decoders := []func([]byte) (any, error){
		func(b []byte) (any, error) { return decodeOrder(b) },
		func(b []byte) (any, error) { return decodeUpdate(b) },
		func(b []byte) (any, error) { return decodeCancellation(b) },
		func(b []byte) (any, error) { return decodeConfirmation(b) },
		func(b []byte) (any, error) { return decodeShipment(b) },
	}
	for _, tt := range hostileBodies {
		if len(tt.body) < 4<<10 {
			f.Add([]byte(tt.body))
		}
	}
	f.Add([]byte(goodBody))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > MaxBodyBytes {
			return
		}
		for i, decode := range decoders {
			var err error
			hostile.Cost(t, len(body), bytesPerByte, func() { _, err = decode(body) })
			var syntax *jsonform.SyntaxError
			if err != nil && !errors.As(err, &syntax) && len(invalidFields(err)) == 0 {
				t.Errorf("decoder %d refuses without naming a field: %v", i, err)
			}
			if n := len(invalidFields(err)); n > jsonform.MaxFieldErrors+1 {
				t.Errorf("decoder %d names %d fields", i, n)
			}
		}
	})
}
