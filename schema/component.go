package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Component is a part of the schema that a keyspace has as a whole or not at all.
// Each migration, and so each table, belongs to one: the directory of its file.
type Component string

// The components. A keyspace that has any of them has Outbox.
const (
	// Outbox has the outbox table and the tables of the migrations: all that a service
	// needs whose relay has another keyspace.
	Outbox Component = "outbox"
	// Core has the tables of the relay and the audit trail.
	Core Component = "core"
	// DeadLetters has the dead letters, and the jobs on them.
	DeadLetters Component = "dead-letters"
	// Schedule has the messages that are stored over HTTP, now or for later.
	Schedule Component = "schedule"
	// Subscriptions has the subscriptions; their dead letters need DeadLetters.
	Subscriptions Component = "subscriptions"
	// Orders has the tables of the example order service. Only a choice by name adds it.
	Orders Component = "orders"
)

// requires contains all components that each component requires.
var requires = map[Component][]Component{
	Outbox: nil, Core: {Outbox}, DeadLetters: {Outbox, Core}, Schedule: {Outbox, Core}, Subscriptions: {Outbox, Core, DeadLetters}, Orders: {Outbox, Core},
}

// Components returns all components. Each is behind the components that it requires.
func Components() []Component {
	return []Component{Outbox, Core, DeadLetters, Schedule, Subscriptions, Orders}
}

// byDefault returns the components of a new keyspace without a choice: all but the example's.
func byDefault() []Component {
	return slices.DeleteFunc(Components(), func(c Component) bool { return c == Orders })
}

// UnknownComponentError reports a name that is not the name of a component.
type UnknownComponentError struct{ Name Component }

// Error returns the name and the valid ones.
func (e *UnknownComponentError) Error() string {
	return fmt.Sprintf("unknown component %q: use %s", e.Name, JoinComponents(Components()))
}

// JoinComponents returns the names with commas, as outbox schema migrate reads them.
func JoinComponents(all []Component) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = string(c)
	}
	return strings.Join(names, ",")
}

// ParseComponents returns the components with these names and all that they require, in the
// order of Components. An unknown name is an *UnknownComponentError, and so is none.
func ParseComponents(names []string) ([]Component, error) {
	if len(names) == 0 {
		return nil, &UnknownComponentError{}
	}
	some := make([]Component, len(names))
	for i, name := range names {
		some[i] = Component(strings.TrimSpace(name))
	}
	return withRequired(some)
}

// withRequired returns the components with all that they require, in the order of
// Components, none for none. An unknown one is an *UnknownComponentError.
func withRequired(some []Component) (out []Component, err error) {
	wanted := map[Component]bool{}
	for _, c := range some {
		needed, ok := requires[c]
		if !ok {
			return nil, &UnknownComponentError{c}
		}
		wanted[c] = true
		for _, n := range needed {
			wanted[n] = true
		}
	}
	for _, c := range Components() {
		if wanted[c] {
			out = append(out, c)
		}
	}
	return out, nil
}

// declaration is the record in schema_migrations that the keyspace has the component. It is
// written before the migrations of the component, so that another run completes them.
func (c Component) declaration() migration {
	return migration{component: c, version: declared, name: "component"}
}

// chosen reports whether the declared components are a complete choice, not the result of a run
// that was interrupted: Migrate declares Outbox last.
func chosen(has []Component) bool {
	return slices.Contains(has, Outbox)
}

// declared is the version of declarations; versions of migrations begin with 1.
const declared = 0

// ReadInstalled returns the components that the keyspace has, in the order of Components. It
// returns nil if they are not known: Migrate has not run, or applies its first migrations, or
// the user may not read schema_migrations. The migrations of a returned component may still
// be in progress.
func ReadInstalled(ctx context.Context, s *gocql.Session, keyspace string) ([]Component, error) {
	if err := (Options{Keyspace: keyspace}).withDefaults().validate(); err != nil {
		return nil, err
	}
	iter := s.Query("SELECT component FROM "+keyspace+".schema_migrations WHERE component IN ? AND version = ?", Components(), declared).
		WithContext(ctx).Consistency(gocql.LocalQuorum).Iter()
	var has []Component
	for c := Component(""); iter.Scan(&c); {
		has = append(has, c)
	}
	switch err := iter.Close(); {
	case cqlcode.Of(err) == gocql.ErrCodeInvalid, cqlcode.Of(err) == gocql.ErrCodeUnauthorized: // Invalid is a missing table
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the components of keyspace %s: %w", keyspace, err)
	case !chosen(has):
		return nil, nil
	}
	return withRequired(has)
}
