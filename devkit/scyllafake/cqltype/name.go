package cqltype

import "strings"

// String returns the CQL name of t as in system_schema.columns.type: text for varchar,
// a tuple always inside frozen<>.
func (t *Type) String() string {
	name := kinds[t.Kind].name
	if params := t.params((*Type).String); params != nil {
		name += "<" + strings.Join(params, ", ") + ">"
	}
	if t.Kind == Tuple || t.Frozen && t.IsCollection() {
		return "frozen<" + name + ">"
	}
	return name
}

// MarshalText returns String.
func (t *Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is Parse.
func (t *Type) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*t = *parsed
	}
	return err
}

// MarshalName returns the class name of t in ScyllaDB's messages,
// org.apache.cassandra.db.marshal.Int32Type for int.
func (t *Type) MarshalName() string {
	const pkg = "org.apache.cassandra.db.marshal."
	name := pkg + kinds[t.Kind].class
	if params := t.params((*Type).MarshalName); params != nil {
		sep := ","
		if t.Kind == Tuple {
			sep = ", "
		}
		name += "(" + strings.Join(params, sep) + ")"
	}
	if t.Frozen && t.IsCollection() {
		return pkg + "FrozenType(" + name + ")"
	}
	return name
}

// params returns the names of the parameters of t, nil if it has none.
func (t *Type) params(name func(*Type) string) (names []string) {
	for _, p := range append([]*Type{t.Key, t.Elem}, t.Fields...) {
		if p != nil {
			names = append(names, name(p))
		}
	}
	return names
}
