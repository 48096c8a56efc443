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

// formatPosition returns a position in a list as a text for its cursor.
func formatPosition(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("admin: marshal a position of plain fields: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// readPosition decodes a text of positionOf into v. Others are of no cursor.
func readPosition(ctx context.Context, position string, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(position)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return invalid(ctx, "query.cursor", httpapi.ProblemCursor)
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

// parseIDs parses the ids of a body without duplicates.
func parseIDs(ctx context.Context, texts []string) (out []gocql.UUID, err error) {
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
