package ddl

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

const strategyPackage = "org.apache.cassandra.locator."

// keyspaceOptions are the properties of CREATE and ALTER KEYSPACE.
type keyspaceOptions struct {
	replication    map[string]string // nil if omitted
	durableWrites  bool
	tablets        *bool
	initialTablets int
}

func (c *Catalog) keyspaceOptions(keyspace string, with []cql.Property) (keyspaceOptions, error) {
	p := keyspaceOptions{durableWrites: true}
	for _, prop := range with {
		var err error
		switch name := prop.Name; {
		case name == "replication":
			p.replication, err = c.replication(keyspace, prop)
		case name == "durable_writes":
			p.durableWrites = truth(prop.Value.Text)
		case name == "tablets" && c.o.Version.HasTablets():
			err = p.readTablets(prop)
		case name == "storage":
			err = cqlerr.Unsupported("the keyspace property storage")
		default:
			err = errUnknownProperty(name)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func errUnknownProperty(name string) error {
	return cqlerr.New(cqlerr.Syntax, "Unknown property '%s'", name)
}

// truth parses a boolean property as ScyllaDB does (property_definitions.cc).
func truth(s string) bool {
	switch strings.ToLower(s) {
	case "1", "true", "yes":
		return true
	}
	return false
}

func (p *keyspaceOptions) readTablets(prop cql.Property) error {
	if !prop.IsMap {
		return cqlerr.New(cqlerr.Syntax, "Invalid value for property 'tablets'. It should be a map.")
	}
	enabled := true
	for k, v := range entries(prop) {
		switch k {
		case "enabled":
			switch strings.ToLower(v) {
			case "true", "false":
				enabled = strings.EqualFold(v, "true")
			default:
				return cqlerr.New(cqlerr.Config, "Tablets enabled value must be true or false; found: %s", v)
			}
		case "initial":
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 {
				return cqlerr.New(cqlerr.Config, "Initial tablets value should be numeric; found %s", v)
			}
			p.initialTablets = n
		default:
			return cqlerr.New(cqlerr.Config, "Unrecognized tablets option: %s", k)
		}
	}
	p.tablets = &enabled
	return nil
}

// entries returns a map property as Go map.
func entries(prop cql.Property) map[string]string {
	m := make(map[string]string, len(prop.Map))
	for _, e := range prop.Map {
		m[e.Key.Text] = e.Value.Text
	}
	return m
}

// replication checks a replication map and completes it: the class gets its
// package, and NetworkTopologyStrategy's replication_factor becomes one entry
// for the data centre.
func (c *Catalog) replication(keyspace string, prop cql.Property) (map[string]string, error) {
	if !prop.IsMap {
		return nil, cqlerr.New(cqlerr.Syntax, "Invalid value for property 'replication'. It should be a map.")
	}
	in := entries(prop)
	class, ok := in["class"]
	if !ok {
		return nil, cqlerr.New(cqlerr.Config, "Missing mandatory replication strategy class")
	}
	delete(in, "class")
	class = strings.TrimPrefix(class, strategyPackage)
	out := map[string]string{"class": strategyPackage + class}
	factor, hasFactor := in["replication_factor"]
	dc := c.o.Topology.DataCenter
	var known []string
	switch class {
	case "SimpleStrategy":
		if !hasFactor {
			return nil, cqlerr.New(cqlerr.Config, "SimpleStrategy requires a replication_factor strategy option.")
		}
		known = []string{"replication_factor"}
		out["replication_factor"] = factor
	case "NetworkTopologyStrategy":
		known = []string{"replication_factor", dc}
		if hasFactor {
			out[dc] = factor
		}
		if f, ok := in[dc]; ok {
			out[dc] = f
		}
	case "EverywhereStrategy":
	case "LocalStrategy":
		return nil, cqlerr.New(cqlerr.Config,
			"Unable to use given strategy class: LocalStrategy is reserved for internal use.")
	default:
		return nil, cqlerr.New(cqlerr.Config, "unable to find class '%s'", class)
	}
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if !slices.Contains(known, k) {
			return nil, cqlerr.New(cqlerr.Config, "Unrecognized strategy option {%s} passed to %s%s for keyspace %s",
				k, strategyPackage, class, keyspace)
		}
		if n, err := strconv.Atoi(in[k]); err != nil {
			return nil, cqlerr.New(cqlerr.Config, "Replication factor must be numeric; found %s", in[k])
		} else if n < 0 {
			return nil, cqlerr.New(cqlerr.Config, "Replication factor must be non-negative; found %s", in[k])
		}
	}
	return out, nil
}
