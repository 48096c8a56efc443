package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// components contains what a command needs and what its keyspace has.
type components struct {
	needed []schema.Component
	has    atomic.Pointer[[]schema.Component] // as of the last session; nil if they are not known
}

// Need makes Session and SessionOnceUp fail if the keyspace does not have one of the
// components, and Has report its components. A keyspace whose components are not known passes.
func (c *ScyllaConfig) Need(needed ...schema.Component) {
	c.components = &components{needed: needed}
}

// Has reports that the keyspace of the last session has the component, or that its components
// are not known.
func (c *ScyllaConfig) Has(one schema.Component) bool {
	if c.components == nil {
		return true
	}
	has := c.components.has.Load()
	return has == nil || slices.Contains(*has, one)
}

// check reads the components of the keyspace, and returns whether they are known. It returns an error of
// usage that names the missing ones: no retry adds them.
func (c *components) check(ctx context.Context, s *gocql.Session, keyspace string) (known bool, err error) {
	if c == nil {
		return false, nil
	}
	has, err := schema.ReadInstalled(ctx, s, keyspace)
	if err != nil || has == nil {
		return false, err
	}
	c.has.Store(&has)
	missing := slices.DeleteFunc(slices.Clone(c.needed), func(x schema.Component) bool { return slices.Contains(has, x) })
	if len(missing) == 0 {
		return true, nil
	}
	return true, cli.Usage(cli.WithHint(missingError{keyspace, missing}, "%s adds the tables", MigrateComponents(keyspace, missing)))
}

// missingError is the error of a keyspace without needed components.
type missingError struct {
	keyspace string
	missing  []schema.Component
}

func (e missingError) Error() string {
	noun := "component"
	if len(e.missing) > 1 {
		noun = "components"
	}
	return fmt.Sprintf("keyspace %s does not have the %s %s", e.keyspace, noun, strings.ReplaceAll(schema.JoinComponents(e.missing), ",", ", "))
}

// MigrateComponents returns the command that adds components to a keyspace.
func MigrateComponents(keyspace string, some []schema.Component) string {
	return fmt.Sprintf("outbox schema migrate --scylla-keyspace %s --components %s", keyspace, schema.JoinComponents(some))
}
