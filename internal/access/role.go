package access

import (
	"context"
	"fmt"
	"slices"
)

// Role is what somebody may do. Each role may do what those before it may.
type Role string

// The roles.
const (
	// Viewer reads.
	Viewer Role = "viewer"
	// Operator also does what can be done again or undone.
	Operator Role = "operator"
	// Admin does everything.
	Admin Role = "admin"
)

// Roles are all roles, from the one that may least.
var Roles = []Role{Viewer, Operator, Admin}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if slices.Contains(Roles, Role(s)) {
		return Role(s), nil
	}
	return "", fmt.Errorf("role %q: use viewer, operator or admin", s)
}

// May tells whether the role includes another. Nobody may what no role names.
func (r Role) May(needed Role) bool {
	have, need := slices.Index(Roles, r), slices.Index(Roles, needed)
	return need >= 0 && have >= need
}

// Principal is who asks.
type Principal struct {
	// Name is the token's, or "oidc:", the claim (email or sub) with a colon, and its
	// value. It is in audits and logs.
	Name string
	// Role is what the principal may do.
	Role Role
}

type principalKey struct{}

// With returns a context that says who asks.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From returns who asks; false if nobody was let in.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}
