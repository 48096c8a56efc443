package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/specialized/generic"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// unsigned is the sender of generic:// URLs, which have the form that they have in shoutrrr:
// it posts title and text as lines, or JSON, to any URL.
type unsigned struct {
	config *generic.Config
	header http.Header
	fields map[string]string // of JSON, beside title and text
}

func newGeneric(u *url.URL) (*unsigned, error) {
	if u.Scheme != generic.Scheme {
		var err error
		if u, err = new(generic.Service).GetConfigURLFromCustom(u); err != nil {
			return nil, err
		}
	}
	s := &unsigned{header: make(http.Header), fields: make(map[string]string)}
	s.config, _ = generic.DefaultConfig()
	if err := s.config.SetURL(u); err != nil {
		return nil, err
	}
	contentType := "text/plain"
	switch {
	case s.json():
		contentType = s.config.ContentType
	case s.config.Template != "":
		return nil, fmt.Errorf("template %q: use json, or none for a text", s.config.Template)
	}
	s.header.Set("Content-Type", contentType)
	s.header.Set("Accept", contentType)
	for name, values := range u.Query() {
		if header, ok := strings.CutPrefix(name, "@"); ok && header != "" {
			s.header.Set(headerName(header), values[0])
		} else if field, ok := strings.CutPrefix(name, "$"); ok && field != "" {
			s.fields[field] = values[0]
		}
	}
	return s, nil
}

// json reports whether the body is JSON.
func (s *unsigned) json() bool {
	return s.config.Template == "json" || s.config.Template == generic.JSONTemplate
}

// headerName returns the name of a header that is written as one word, such as contentType.
func headerName(name string) string {
	var b strings.Builder
	for i, c := range []byte(name) {
		if i > 0 && name[i-1] != '-' && 'A' <= c && c <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// send posts title and text. Any status below 400 accepts them.
func (s *unsigned) send(ctx context.Context, message string, params *types.Params) error {
	body := []byte(strings.TrimPrefix((*params)[types.TitleKey]+"\n"+message, "\n"))
	if s.json() {
		fields := maps.Clone(s.fields)
		for key, value := range *params {
			if key == types.TitleKey {
				key = s.config.TitleKey
			}
			fields[key] = value
		}
		fields[s.config.MessageKey] = message
		var err error
		if body, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, s.config.RequestMethod, s.config.WebhookURL().String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = s.header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Unavailable(err)
	}
	defer func() { _ = resp.Body.Close() }()          // it was read
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // only for the connection's sake
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	return statusError(resp.StatusCode, resp.Header, time.Now())
}
