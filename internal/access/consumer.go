package access

import (
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
)

// Consumer is the role of a token that receives and settles the messages of some
// subscriptions, and does nothing else. It is not one of Roles: no other role includes it
// by order, and it includes none. Its form in settings is consumer(NAMES), where NAMES are
// names of subscriptions, or patterns with * for any characters, separated by |. The name
// consumer alone means all subscriptions.
const Consumer Role = "consumer"

// anySubscription is the pattern of a consumer without names.
const anySubscription = "*"

// patternForm is a name of a subscription with *.
var patternForm = regexp.MustCompile(`^[a-zA-Z0-9_*-]{1,60}$`)

// parseGrant parses the role of a token in settings. subscriptions is empty for roles
// other than Consumer.
func parseGrant(s string) (role Role, subscriptions string, err error) {
	if s == string(Consumer) {
		return Consumer, anySubscription, nil
	}
	names, ok := strings.CutPrefix(s, string(Consumer)+"(")
	if !ok {
		role, err = ParseRole(s)
		return role, "", err
	}
	names, ok = strings.CutSuffix(names, ")")
	for name := range strings.SplitSeq(names, "|") {
		if !ok || !patternForm.MatchString(name) {
			return "", "", fmt.Errorf("role %q: use consumer(NAMES) with names of subscriptions separated by |; * matches any characters", clip(s))
		}
	}
	return Consumer, names, nil
}

// MayConsume reports whether the principal may receive and settle the messages of a
// subscription: as its consumer, or as an operator or admin.
func (p Principal) MayConsume(subscription string) bool {
	if p.Role != Consumer {
		return p.Role.May(Operator)
	}
	for pattern := range strings.SplitSeq(p.Subscriptions, "|") {
		if ok, err := path.Match(pattern, subscription); ok && err == nil {
			return true
		}
	}
	return false
}

// PermitConsume returns an *Error unless p may consume the subscription.
func PermitConsume(p Principal, subscription string) error {
	if p.MayConsume(subscription) {
		return nil
	}
	return &Error{Status: http.StatusForbidden, Detail: fmt.Sprintf("This needs the role consumer(%s), operator or admin; %s has the role %s.", clip(subscription), p.Name, p.grant())}
}

// grant returns the role with its subscriptions.
func (p Principal) grant() string {
	if p.Role != Consumer {
		return string(p.Role)
	}
	return string(p.Role) + "(" + p.Subscriptions + ")"
}
