package ddl

import (
	"maps"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func (w *change) createType(keyspace string, s *cql.CreateType) error {
	n, err := resolve(keyspace, s.Type)
	if err != nil {
		return err
	}
	ks := w.keyspace(n.Keyspace)
	if ks == nil {
		return cqlerr.New(cqlerr.Server, "Can't find a keyspace %s", n.Keyspace)
	}
	if ks.Types[n.Name] != nil {
		if s.IfNotExists {
			return w.exists(catalog.TargetType, n.Keyspace, n.Name)
		}
		return cqlerr.Invalidf("A user type of name %s.%s already exists", n.Keyspace, n.Name)
	}
	var fields []cqltype.Field
	for _, d := range s.Fields {
		f, err := w.field(n, fields, d)
		if err != nil {
			return err
		}
		fields = append(fields, f)
	}
	ks.Types[n.Name] = cqltype.NewUDT(n.Keyspace, n.Name, fields...)
	w.putType(ks.Types[n.Name])
	w.notify(catalog.Created, catalog.TargetType, n.Keyspace, n.Name)
	w.answer(catalog.Created, catalog.TargetType, n.Keyspace, n.Name)
	return nil
}

// field parses one field of a user type that has the fields before it.
func (w *change) field(n cql.Name, before []cqltype.Field, d cql.ColumnDef) (cqltype.Field, error) {
	if slices.ContainsFunc(before, func(f cqltype.Field) bool { return f.Name == d.Name }) {
		return cqltype.Field{}, cqlerr.Invalidf("Duplicate field name %s in type %s", d.Name, n.Name)
	}
	if _, err := cqltype.Parse(d.Type, nil); err != nil {
		// A bare name that is not a native type is a user type, whether it exists or
		// not.
		if validName.MatchString(d.Type) {
			return cqltype.Field{}, cqlerr.Invalidf("A user type cannot contain non-frozen user type fields")
		}
	}
	t, err := cqltype.Parse(d.Type, w.userType(n.Keyspace))
	if err != nil {
		return cqltype.Field{}, err
	}
	switch {
	case t.Kind == cqltype.Counter:
		return cqltype.Field{}, cqlerr.Invalidf("A user type cannot contain counters")
	case t.Kind == cqltype.UDT && !t.Frozen:
		return cqltype.Field{}, cqlerr.Invalidf("A user type cannot contain non-frozen user type fields")
	}
	return cqltype.Field{Name: d.Name, Type: t}, nil
}

func (w *change) alterType(keyspace string, s *cql.AlterType) error {
	n, err := resolve(keyspace, s.Type)
	if err != nil {
		return err
	}
	ks := w.keyspace(n.Keyspace)
	if ks == nil || ks.Types[n.Name] == nil {
		return errNoType(n)
	}
	old := ks.Types[n.Name]
	fields := slices.Clone(old.Fields)
	index := func(name string) int {
		return slices.IndexFunc(fields, func(f cqltype.Field) bool { return f.Name == name })
	}
	for _, d := range s.Add {
		if index(d.Name) >= 0 {
			return cqlerr.Invalidf("Cannot add new field %s to type %s: a field of the same name already exists", d.Name, n.Name)
		}
		f, err := w.field(n, nil, d)
		if err != nil {
			return err
		}
		if f.Type.References(n.Keyspace, n.Name) {
			return cqlerr.Invalidf("Cannot add new field %s of type %s to type %s.%s as this would create a circular reference", d.Name, d.Type, n.Keyspace, n.Name)
		}
		fields = append(fields, f)
	}
	for _, r := range s.Rename {
		i := index(r[0])
		if i < 0 {
			return cqlerr.Invalidf("Unknown field %s in type %s", r[0], n.Name)
		}
		if index(r[1]) >= 0 {
			return cqlerr.Invalidf("Duplicate field name %s in type %s", r[1], n.Name)
		}
		fields[i].Name = r[1]
	}
	if d := s.AlterField; d != nil {
		i := index(d.Name)
		if i < 0 {
			return cqlerr.Invalidf("Unknown field %s in type %s", d.Name, n.Name)
		}
		f, err := w.field(n, nil, *d)
		if err != nil {
			return err
		}
		if !valueCompatible(fields[i].Type, f.Type) {
			return cqlerr.Invalidf("Type %s is incompatible with previous type %s of field %s in user type %s",
				f.Type, fields[i].Type, d.Name, n.Name)
		}
		fields[i] = f
	}
	w.notify(catalog.Updated, catalog.TargetType, n.Keyspace, n.Name)
	w.answer(catalog.Updated, catalog.TargetType, n.Keyspace, n.Name)
	ks.Types[n.Name] = cqltype.NewUDT(n.Keyspace, n.Name, fields...)
	w.putType(ks.Types[n.Name])
	w.retype(ks, n.Name)
	return nil
}

func errNoType(n cql.Name) error {
	return cqlerr.Invalidf("No user type named %s.%s exists.", n.Keyspace, n.Name)
}

// retype gives every user of a changed user type, also one that uses it within another
// type, its new form, with one event each.
func (w *change) retype(ks *catalog.Keyspace, name string) {
	for _, other := range slices.Sorted(maps.Keys(ks.Types)) {
		if t := ks.Types[other]; other != name && t.References(ks.Name, name) {
			fields := slices.Clone(t.Fields)
			for i := range fields {
				fields[i].Type = withType(fields[i].Type, ks.Types[name])
			}
			ks.Types[other] = cqltype.NewUDT(ks.Name, other, fields...)
			w.notify(catalog.Updated, catalog.TargetType, ks.Name, other)
		}
	}
	tables := slices.Sorted(maps.Keys(ks.Tables))
	for _, views := range []bool{false, true} {
		for _, tn := range tables {
			old := ks.Tables[tn]
			if (old.Kind == catalog.View) != views || !usesType(old, ks.Name, name) {
				continue
			}
			t := old.Clone()
			for _, c := range t.ByName {
				c.Type = withType(c.Type, ks.Types[name])
			}
			ks.Tables[tn] = t
			w.putTable(t)
			w.notify(catalog.Updated, catalog.TargetTable, ks.Name, tn)
		}
	}
}

func usesType(t *catalog.Table, keyspace, name string) bool {
	for _, c := range t.ByName {
		if c.Type.References(keyspace, name) {
			return true
		}
	}
	return false
}

// withType returns t with every use of a user type replaced by its new form.
func withType(t, udt *cqltype.Type) *cqltype.Type {
	if t == nil || !t.References(udt.Keyspace, udt.Name) {
		return t
	}
	if t.Kind == cqltype.UDT && t.Keyspace == udt.Keyspace && t.Name == udt.Name {
		if t.Frozen {
			return udt.Freeze()
		}
		return udt
	}
	n := *t
	n.Key, n.Elem = withType(t.Key, udt), withType(t.Elem, udt)
	n.Fields = slices.Clone(t.Fields)
	for i := range n.Fields {
		n.Fields[i].Type = withType(n.Fields[i].Type, udt)
	}
	return &n
}

func (w *change) dropType(keyspace string, s *cql.DropType) error {
	n, err := resolve(keyspace, s.Type)
	if err != nil {
		return err
	}
	ks := w.keyspace(n.Keyspace)
	if ks == nil || ks.Types[n.Name] == nil {
		if s.IfExists {
			return errNothing
		}
		return errNoType(n)
	}
	for _, other := range slices.Sorted(maps.Keys(ks.Types)) {
		if other != n.Name && ks.Types[other].References(n.Keyspace, n.Name) {
			return cqlerr.Invalidf("Cannot drop user type %s.%s as it is still used by user type %s", n.Keyspace, n.Name, other)
		}
	}
	for _, tn := range slices.Sorted(maps.Keys(ks.Tables)) {
		if usesType(ks.Tables[tn], n.Keyspace, n.Name) {
			return cqlerr.Invalidf("Cannot drop user type %s.%s as it is still used by table %s.%s", n.Keyspace, n.Name, n.Keyspace, tn)
		}
	}
	delete(ks.Types, n.Name)
	w.removeType(n.Keyspace, n.Name)
	w.notify(catalog.Dropped, catalog.TargetType, n.Keyspace, n.Name)
	w.answer(catalog.Dropped, catalog.TargetType, n.Keyspace, n.Name)
	return nil
}
