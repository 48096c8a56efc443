package admin

import (
	"strings"
	"testing"
)

// A whole number may have a fraction of zeros, as some programs write it.
func TestStrictJSON_WholeNumbers(t *testing.T) {
	t.Parallel()
	var b ReshardBody
	if err := strictJSON.Unmarshal([]byte(`{"from":4.0,"to":8e0}`), &b); err != nil || *b.From != 4 || b.To != 8 {
		t.Errorf("%+v, %v, want 4 and 8", b, err)
	}
	if err := strictJSON.Unmarshal([]byte(`{"from":4,"to":8.5}`), &b); err == nil {
		t.Errorf("8.5 is %d", b.To)
	}
}

// linked is a body of another API that encodes itself.
type linked struct{}

func (linked) EncodeJSON() ([]byte, error) { return []byte(`{"links":{}}`), nil }

// A body that encodes itself, such as an order with its links, is the same as in its own API.
func TestStrictJSON_BodyThatEncodesItself(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := strictJSON.Marshal(&out, linked{}); err != nil || strings.TrimSpace(out.String()) != `{"links":{}}` {
		t.Errorf("Marshal() = %s, %v, want the body's own JSON", out.String(), err)
	}
}
