package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// when returns a time as in responses: nil for the zero time.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// etag returns a version as an ETag.
func etag(version int64) string { return httpapi.ETag(version) }

// ifMatch parses a header If-Match; 0 means any version.
func ifMatch(ctx context.Context, header string) (int64, error) {
	version, ok := httpapi.ParseIfMatch(header)
	if !ok { // a number that is too large for its pattern
		return 0, invalid(ctx, "header.If-Match", `must be an ETag with its quotes, such as "3"`)
	}
	return version, nil
}

// cursorOf returns a place in a listing as an opaque cursor.
func cursorOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("admin: marshal a cursor of plain fields: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// readCursor decodes a cursor of cursorOf into v. Other cursors are invalid.
func readCursor(ctx context.Context, location, cursor string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return invalid(ctx, location, "not a cursor of this API; start without a cursor")
	}
	return nil
}

// eventID parses an id.
func eventID(ctx context.Context, location, text string) (gocql.UUID, error) {
	id, err := gocql.ParseUUID(text)
	if err != nil {
		return id, invalid(ctx, location, "must be an id such as 01a2005c-395d-72e3-8401-994110828553")
	}
	return id, nil
}

// idsOf parses the ids of a body without duplicates.
func idsOf(ctx context.Context, texts []string) (out []gocql.UUID, err error) {
	seen := make(map[gocql.UUID]bool, len(texts))
	for i, text := range texts {
		id, err := eventID(ctx, fmt.Sprintf("body.ids[%d]", i), text)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out, nil
}

// none reports whether an error means that there is no such row.
func none(err error) bool { return errors.Is(err, gocql.ErrNotFound) }
