package notify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// chat is a Target with a URL of shoutrrr.
type chat struct {
	scheme string
	send   sender
	redact redactor
}

// plainSchemes are services without a title: it becomes the first line of the
// text.
var plainSchemes = []string{"googlechat", "hangouts", "rocketchat", "signal", "wecom", "mattermost", "matrix", "pushbullet", "notifiarr"}

// NewURL returns a Target for a shoutrrr URL, such as slack://, smtp://,
// pagerduty://, teams://, discord://, telegram://, opsgenie:// or generic://;
// see shoutrrr.nickfedor.com for their forms. A pager receives the severity and
// has one incident per Key, closed by the Resolved message. Errors and the log
// never contain the URL, which is secret as a whole.
func NewURL(raw string) (Target, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("a target needs a URL such as slack://…, smtp://…, pagerduty://… or webhook+https://…")
	}
	redact := newRedactor(raw)
	scheme, _, _ := strings.Cut(u.Scheme, "+")
	if scheme == "logger" {
		return nil, errors.New("logger:// is not a target: undelivered messages are always logged")
	}
	send, err := newSender(u)
	if err != nil {
		return nil, fmt.Errorf("target %s://***: %w", u.Scheme, redact.err(err))
	}
	return &chat{scheme: scheme, send: send, redact: redact}, nil
}

// maxChat bounds the characters of a text; some services refuse 2,000.
const maxChat = 1500

// Send sends m.
func (c *chat) Send(ctx context.Context, m Message) error {
	text, params := c.compose(&m)
	return c.redact.err(c.send(ctx, text, &params))
}

// compose is m in the words of the service.
func (c *chat) compose(m *Message) (string, types.Params) {
	title, text := m.Title, m.Text
	if m.Resolved {
		title = "Resolved: " + title
	}
	if r := []rune(text); len(r) > maxChat {
		text = string(r[:maxChat]) + "…"
	}
	if m.URL != "" {
		text = strings.TrimRight(text, "\n") + "\n" + m.URL
	}
	title, text = c.tame(title), c.tame(text)
	params := types.Params{}
	switch {
	case c.scheme == "pagerduty":
		params["dedup_key"], params["severity"], params["action"] = m.Key, string(m.Severity), "trigger"
		if m.Resolved {
			params["action"] = "resolve"
		}
		return title + "\n" + text, params
	case slices.Contains(plainSchemes, c.scheme):
		return title + "\n" + text, params
	}
	params[types.TitleKey] = title
	return text, params
}

// tame escapes commands of chats in a text, parts of which come from events and
// errors: mentions of everyone, and Slack's markup.
func (c *chat) tame(s string) string {
	s = mentions.Replace(s)
	if c.scheme == "slack" {
		s = slackMarkup.Replace(s)
	}
	return s
}

var (
	mentions = strings.NewReplacer("@everyone", "@\u200beveryone", "@here", "@\u200bhere", "@channel", "@\u200bchannel", "@all", "@\u200ball",
		"@room", "@\u200broom", "<@", "<\u200b@")
	slackMarkup = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)
