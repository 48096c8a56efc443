package messages

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Every operation has examples of its request and its responses, and each is
// valid by its schema.
func TestOpenAPI_ExamplesAreValid(t *testing.T) {
	t.Parallel()
	s, err := NewService(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := humago.New(http.NewServeMux(), huma.DefaultConfig("Messages", "1"))
	NewAPI(s).Register(h)
	NewAPI(s).RegisterMany(h)
	doc := h.OpenAPI()
	count := 0
	check := func(where string, media *huma.MediaType, mode huma.ValidateMode) {
		t.Helper()
		if media == nil || media.Example == nil {
			t.Errorf("%s has no example", where)
			return
		}
		count++
		b, err := json.Marshal(media.Example)
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(b, &plain); err != nil {
			t.Fatal(err)
		}
		var result huma.ValidateResult
		huma.Validate(doc.Components.Schemas, media.Schema, huma.NewPathBuffer(nil, 0), mode, plain, &result)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", where, err)
		}
	}
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Delete} {
			if op == nil {
				continue
			}
			if op.RequestBody != nil {
				check(op.OperationID+" request", op.RequestBody.Content["application/json"], huma.ModeWriteToServer)
			}
			for code, r := range op.Responses {
				for kind, media := range r.Content {
					check(op.OperationID+" "+code+" "+kind, media, huma.ModeReadFromServer)
				}
			}
		}
	}
	if count < 45 {
		t.Errorf("checked %d examples", count)
	}
}
