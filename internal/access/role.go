package access

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Role is a set of permissions. Each role includes the previous ones.
type Role string

// The roles.
const (
	// Viewer reads.
	Viewer Role = "viewer"
	// Operator also makes changes that can be repeated or undone.
	Operator Role = "operator"
	// Admin does everything.
	Admin Role = "admin"
)

// Roles are all roles, the least privileged first.
var Roles = []Role{Viewer, Operator, Admin}

// ParseRole parses the name of a role.
func ParseRole(s string) (Role, error) {
	if slices.Contains(Roles, Role(s)) {
		return Role(s), nil
	}
	return "", fmt.Errorf("role %q: use viewer, operator, admin, consumer(NAMES) or producer(TOPICS)", s)
}

// May reports whether the role includes another. It is false for unknown roles.
func (r Role) May(needed Role) bool {
	have, need := slices.Index(Roles, r), slices.Index(Roles, needed)
	return need >= 0 && have >= need
}

// Principal is an authenticated user or program.
type Principal struct {
	// Name is the name of the token, or "oidc:" with the claim (email or sub), a colon
	// and its value. Audit trails and logs contain it.
	Name string
	// Role determines the permitted actions of the principal.
	Role Role
	// Names are the names and patterns of the subscriptions of a Consumer, or of the topics of a
	// Producer, separated by |. Empty for other roles.
	Names string

	requests *limits // of the Gate; nil for other principals
}

type principalKey struct{}

// With returns a context with a principal.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Charge takes one request from the rate of the principal of ctx, for a message of a WebSocket,
// and waits until the rate permits it. Without a principal it returns immediately. The error is
// that of ctx.
func Charge(ctx context.Context) error {
	p, _ := From(ctx)
	if p.requests == nil {
		return ctx.Err()
	}
	for {
		wait, ok := p.requests.take(p.Name)
		if ok {
			return ctx.Err()
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// From returns the principal of a context; false if there is none.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}
