package access

import (
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
)

// Consumer is the role of a token that receives and settles the messages of some
// subscriptions and reads their state, and does nothing else. It is not one of Roles: no other role includes it
// by order, and it includes none. Its form in settings is consumer(NAMES), where NAMES are
// names of subscriptions, or patterns with * for any characters, separated by |. The name
// consumer alone means all subscriptions.
const Consumer Role = "consumer"

// Producer is the role of a token that sends messages to some topics, and does nothing else.
// Like Consumer it is not one of Roles. Its form in settings is producer(TOPICS), where TOPICS are
// names of topics or patterns as in Consumer; producer alone means all topics that accept
// messages.
const Producer Role = "producer"

// anyName is the pattern of a consumer or producer without names.
const anyName = "*"

// patternForms are the names of each role, with *.
var patternForms = map[Role]*regexp.Regexp{
	Consumer: regexp.MustCompile(`^[a-zA-Z0-9_*-]{1,60}$`),
	Producer: regexp.MustCompile(`^[a-zA-Z0-9._*-]{1,249}$`),
}

// parseGrant parses the role of a token in settings.
func parseGrant(s string) (p Principal, err error) {
	name, names, ok := strings.Cut(s, "(")
	form := patternForms[Role(name)]
	if form == nil {
		p.Role, err = ParseRole(s)
		return p, err
	}
	if names, closed := strings.CutSuffix(names, ")"); ok {
		for pattern := range strings.SplitSeq(names, "|") {
			if !closed || !form.MatchString(pattern) {
				return p, fmt.Errorf("role %q: use consumer(NAMES) with names of subscriptions, or producer(TOPICS) with names of topics, separated by |; * matches any characters", clip(s))
			}
		}
		return Principal{Role: Role(name), Names: names}, nil
	}
	return Principal{Role: Role(name), Names: anyName}, nil
}

// matches reports whether one of the names of the principal matches.
func (p Principal) matches(name string) bool {
	for pattern := range strings.SplitSeq(p.Names, "|") {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// PermitRead returns an *Error unless p may read the state of a subscription: as its consumer, or
// as a viewer.
func PermitRead(p Principal, subscription string) error {
	if p.Role == Consumer {
		return PermitConsume(p, subscription)
	}
	return Permit(p, Viewer)
}

// PermitTopic returns an *Error if p is a Producer of other topics.
func PermitTopic(p Principal, topic string) error {
	if p.Role != Producer || p.matches(topic) {
		return nil
	}
	return &Error{Status: http.StatusForbidden, Detail: fmt.Sprintf("This needs the role producer(%s), operator or admin; %s has the role %s.", clip(topic), p.Name, p.grant())}
}

// MayConsume reports whether the principal may receive and settle the messages of a
// subscription: as its consumer, or as an operator or admin.
func (p Principal) MayConsume(subscription string) bool {
	if p.Role != Consumer {
		return p.Role.May(Operator)
	}
	return p.matches(subscription)
}

// PermitConsume returns an *Error unless p may consume the subscription.
func PermitConsume(p Principal, subscription string) error {
	if p.MayConsume(subscription) {
		return nil
	}
	return &Error{Status: http.StatusForbidden, Detail: fmt.Sprintf("This needs the role consumer(%s), operator or admin; %s has the role %s.", clip(subscription), p.Name, p.grant())}
}

// grant returns the role with its names.
func (p Principal) grant() string {
	if p.Names == "" {
		return string(p.Role)
	}
	return string(p.Role) + "(" + p.Names + ")"
}
