package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func TestProblem_Is(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		document string
		status   int
		is       error // of these errors, nil for none
	}{
		{`{"type":"urn:scylla-outbox:problem:message-not-found"}`, 404, ErrNotFound},
		{`{"type":"urn:scylla-outbox:problem:not-found"}`, 404, ErrNotFound},
		{`{"type":"urn:scylla-outbox:problem:no-such-path"}`, 404, nil},
		{`{}`, 404, nil},
		{`{"type":"urn:scylla-outbox:problem:stale-version"}`, 412, ErrStale},
		{`{"type":"urn:scylla-outbox:problem:invalid-fields"}`, 422, ErrInvalid},
	} {
		p := &Problem{}
		if err := json.Unmarshal([]byte(tt.document), p); err != nil || string(p.Document) != tt.document {
			t.Fatalf("%s: %v, document %s", tt.document, err, p.Document)
		}
		p.Status = tt.status
		err := fmt.Errorf("POST /: %w", p)
		for _, target := range []error{ErrNotFound, ErrStale, ErrInvalid, ErrKeyReuse, Type("")} {
			if got := errors.Is(err, target); got != (target == tt.is) {
				t.Errorf("%d %s: errors.Is(%q) = %t", tt.status, tt.document, target, got)
			}
		}
	}
}
