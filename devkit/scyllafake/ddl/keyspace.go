package ddl

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

const maxNameLength = 48

var validName = regexp.MustCompile(`^\w+$`)

func (w *change) createKeyspace(s *cql.CreateKeyspace) error {
	name := s.Keyspace
	switch {
	case system.IsProtected(name):
		return cqlerr.Invalidf("%s keyspace is not user-modifiable", name)
	case !validName.MatchString(name):
		return cqlerr.Invalidf("\"%s\" is not a valid keyspace name", name)
	case len(name) > maxNameLength:
		return cqlerr.Invalidf("Keyspace names shouldn't be more than %d characters long (got \"%s\")", maxNameLength, name)
	}
	p, err := w.c.keyspaceOptions(name, s.With)
	if err != nil {
		return err
	}
	tablets := false
	if p.replication != nil {
		if tablets, err = w.wantsTablets(p); err != nil {
			return err
		}
	}
	w.warn(name, tablets, s.With)
	if p.replication == nil {
		return cqlerr.New(cqlerr.Config, "Missing mandatory replication strategy class")
	}
	if w.next.Keyspaces[name] != nil {
		if s.IfNotExists {
			return w.exists(catalog.TargetKeyspace, name, "")
		}
		return &cqlerr.Error{
			Code: cqlerr.AlreadyExists, Message: "Cannot add existing keyspace \"" + name + "\"", Keyspace: name,
		}
	}
	ks := &catalog.Keyspace{
		Name:          name,
		Replication:   p.replication,
		DurableWrites: p.durableWrites,
		Tablets:       tablets,
		Tables:        map[string]*catalog.Table{},
	}
	if tablets {
		ks.InitialTablets = p.initialTablets
	}
	w.next.Keyspaces[name] = ks
	w.owned[name] = true
	w.putKeyspace(ks)
	w.publish(catalog.Created, catalog.TargetKeyspace, name, "")
	return nil
}

// wantsTablets reports whether a new keyspace uses tablets.
func (w *change) wantsTablets(p keyspaceOptions) (bool, error) {
	networked := p.replication["class"] == strategyPackage+"NetworkTopologyStrategy"
	if p.tablets == nil {
		return networked && w.c.o.Tablets, nil
	}
	if *p.tablets && !networked {
		return false, cqlerr.New(cqlerr.Config, "%s doesn't support tablet replication",
			strings.TrimPrefix(p.replication["class"], strategyPackage))
	}
	return *p.tablets, nil
}

// warn adds the warnings of newer releases about options of a keyspace.
func (w *change) warn(keyspace string, tablets bool, with []cql.Property) {
	if !w.release.AtLeast(2026, 1) {
		return
	}
	for _, prop := range with {
		if _, initial := entries(prop)["initial"]; initial && prop.Name == "tablets" {
			w.warnings = append(w.warnings, "Keyspace `initial` tablets option is deprecated.  Use per-table tablet options instead.")
		}
	}
	for _, prop := range with {
		if prop.Name != "replication" {
			continue
		}
		if class := entries(prop)["class"]; class == "SimpleStrategy" || class == strategyPackage+"SimpleStrategy" {
			w.warnings = append(w.warnings, "SimpleStrategy replication class is not recommended, but was used for keyspace "+keyspace+
				". You may suppress this warning by delisting SimpleStrategy from replication_strategy_warn_list configuration option,"+
				" or make it into an error by listing this replication strategy on replication_strategy_fail_list.")
		}
		for _, e := range prop.Map {
			// The node has one rack.
			if n, err := strconv.Atoi(e.Value.Text); tablets && err == nil && n > 1 {
				w.warnings = append(w.warnings, "Keyspace '"+keyspace+"' is not RF-rack-valid: the replication factor doesn't match the rack count"+
					" in at least one datacenter. A rack failure may reduce availability. For more context,"+
					" see: https://docs.scylladb.com/manual/stable/reference/glossary.html#term-RF-rack-valid-keyspace.")
			}
		}
		for _, e := range prop.Map {
			if n, err := strconv.Atoi(e.Value.Text); err == nil && n > 0 && n < 3 {
				w.warnings = append(w.warnings, "Using Replication Factor "+e.Key.Text+"="+e.Value.Text+
					" lower than the minimum_replication_factor_warn_threshold=3 is not recommended.")
			}
		}
	}
}

func (w *change) dropKeyspace(s *cql.DropKeyspace) error {
	name := s.Keyspace
	if system.IsProtected(name) {
		return errProtected(name)
	}
	ks := w.next.Keyspaces[name]
	if ks == nil {
		if s.IfExists {
			return errNothing
		}
		return cqlerr.New(cqlerr.Config, "Cannot drop non existing keyspace '%s'.", name)
	}
	if strings.HasPrefix(name, "system_") {
		return cqlerr.Unsupported("DROP KEYSPACE " + name + " (it ruins a ScyllaDB node)")
	}
	for _, n := range slices.Sorted(maps.Keys(ks.Tables)) {
		t := ks.Tables[n]
		w.notify(catalog.Dropped, catalog.TargetTable, name, n)
		w.forget(t)
		if t.CDC != nil {
			w.endStreams(t)
		}
	}
	delete(w.next.Keyspaces, name)
	w.removeKeyspace(name)
	w.publish(catalog.Dropped, catalog.TargetKeyspace, name, "")
	return nil
}
