package notify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/discord"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/googlechat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/lark"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/matrix"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/mattermost"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/rocketchat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/signal"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/slack"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/teams"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/telegram"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/wecom"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/zulip"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/opsgenie"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/pagerduty"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/bark"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/gotify"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ifttt"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/join"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushbullet"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushover"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/specialized/notifiarr"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// services are the services of shoutrrr by scheme, except smtp and generic. These two, which
// shoutrrr's router contains, call text/template. It calls methods by name, so that the linker
// would keep the exported methods of all types.
var services = map[string]func() types.Service{
	"bark":       func() types.Service { return new(bark.Service) },
	"discord":    func() types.Service { return new(discord.Service) },
	"googlechat": func() types.Service { return new(googlechat.Service) },
	"gotify":     func() types.Service { return new(gotify.Service) },
	"hangouts":   func() types.Service { return new(googlechat.Service) },
	"ifttt":      func() types.Service { return new(ifttt.Service) },
	"join":       func() types.Service { return new(join.Service) },
	"lark":       func() types.Service { return new(lark.Service) },
	"matrix":     func() types.Service { return new(matrix.Service) },
	"mattermost": func() types.Service { return new(mattermost.Service) },
	"notifiarr":  func() types.Service { return new(notifiarr.Service) },
	"ntfy":       func() types.Service { return new(ntfy.Service) },
	"opsgenie":   func() types.Service { return new(opsgenie.Service) },
	"pagerduty":  func() types.Service { return new(pagerduty.Service) },
	"pushbullet": func() types.Service { return new(pushbullet.Service) },
	"pushover":   func() types.Service { return new(pushover.Service) },
	"rocketchat": func() types.Service { return new(rocketchat.Service) },
	"signal":     func() types.Service { return new(signal.Service) },
	"slack":      func() types.Service { return new(slack.Service) },
	"teams":      func() types.Service { return new(teams.Service) },
	"telegram":   func() types.Service { return new(telegram.Service) },
	"wecom":      func() types.Service { return new(wecom.Service) },
	"zulip":      func() types.Service { return new(zulip.Service) },
}

// sender sends a text with parameters, such as the title.
type sender func(ctx context.Context, text string, params *types.Params) error

// withContext is implemented by some services. Others have time-outs of their own.
type withContext interface {
	SendWithContext(ctx context.Context, message string, params *types.Params) error
}

// newSender returns the sender of a URL. SCHEME+https://… is the URL that some services show
// to their users.
func newSender(u *url.URL) (sender, error) {
	scheme, _, custom := strings.Cut(u.Scheme, "+")
	switch scheme {
	case "smtp":
		m, err := newMail(u)
		if err != nil {
			return nil, err
		}
		return m.send, nil
	case "generic":
		s, err := newGeneric(u)
		if err != nil {
			return nil, err
		}
		return s.send, nil
	}
	of, ok := services[scheme]
	if !ok {
		return nil, fmt.Errorf("unknown service %q", scheme)
	}
	service := of()
	if custom {
		c, ok := service.(types.CustomURLService)
		if !ok {
			return nil, fmt.Errorf("%s has no such URL: use %s://…", scheme, scheme)
		}
		var err error
		if u, err = c.GetConfigURLFromCustom(u); err != nil {
			return nil, errForm
		}
	}
	if err := service.Initialize(u, nil); err != nil {
		return nil, errForm
	}
	if s, ok := service.(withContext); ok {
		return s.SendWithContext, nil
	}
	return func(_ context.Context, text string, params *types.Params) error { return service.Send(text, params) }, nil
}

// errForm replaces errors of services, which may contain parts of the URL that a redactor
// does not know.
var errForm = errors.New("the service does not accept the form of the URL")
