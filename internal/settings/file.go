package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// readFile sets the settings of a YAML file and returns their keys. A key that no setting has is an error: a
// misspelt one would leave a default in force silently. flags are the flags of the command.
func (fs Fields) readFile(path string, flags *pflag.FlagSet) (map[string]bool, []error) {
	in := func(err error) error { return fmt.Errorf("configuration file %s: %w", path, err) }
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{in(err)}
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, []error{in(err)}
	}
	r := reader{fields: fs, read: fs.readBy(flags).keys(), keys: make(map[string]bool)}
	r.section(doc.Content[0], "")
	if !errors.Is(dec.Decode(&more), io.EOF) {
		r.errs = append(r.errs, errors.New("more than one document: write one"))
	}
	for i, err := range r.errs {
		r.errs[i] = in(err)
	}
	return r.keys, r.errs
}

// reader sets the settings of a file, and collects its errors.
type reader struct {
	fields Fields
	read   []string // keys of the settings that the command reads
	keys   map[string]bool
	errs   []error
}

func (r *reader) bad(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("line %d: %w", n.Line, fmt.Errorf(format, args...)))
}

// section reads the mapping n, whose keys follow path.
func (r *reader) section(n *yaml.Node, path string) {
	if null(n) {
		return
	}
	r.pairs(n, path, func(name string, key, value *yaml.Node) {
		at := join(path, name)
		for _, f := range r.fields {
			if f.Key == at {
				if !null(value) { // as if the key were not there
					r.keys[at] = true
					r.value(value, f.value, at, f.tag)
				}
				return
			}
		}
		for _, f := range r.fields {
			if strings.HasPrefix(f.Key, at+".") {
				r.section(value, at)
				return
			}
		}
		r.bad(key, "unknown key %q%s", at, r.suggest(at))
	})
}

// pairs calls f for each pair of the mapping n.
func (r *reader) pairs(n *yaml.Node, path string, f func(name string, key, value *yaml.Node)) {
	n = target(n)
	if n.Kind != yaml.MappingNode {
		if path == "" {
			r.bad(n, "write sections with their settings, as in scylla: {hosts: [a]}")
		} else {
			r.bad(n, "%s: write keys and values below it", path)
		}
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := target(n.Content[i]), target(n.Content[i+1])
		switch {
		case key.Tag == "!!merge":
			r.bad(key, "%s: merge keys are not supported", join(path, key.Value))
		case key.Kind != yaml.ScalarNode:
			r.bad(key, "%s: a key must be text", path)
		case seen[key.Value]:
			r.bad(key, "%s is listed twice", join(path, key.Value))
		default:
			seen[key.Value] = true
			f(key.Value, key, value)
		}
	}
}

// value sets v, the setting at path or a part of it, from n.
func (r *reader) value(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	n = target(n)
	slice := v.Kind() == reflect.Slice
	switch {
	case v.Kind() == reflect.Struct:
		r.object(n, v, path)
	case slice && n.Kind == yaml.SequenceNode:
		out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, x := range n.Content {
			r.value(x, out.Index(i), fmt.Sprintf("%s[%d]", path, i), tag)
		}
		v.Set(out)
	case slice && v.Type().Elem().Kind() == reflect.Struct:
		r.bad(n, "%s: write a list", path)
	case v.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		pairs := make(map[string]string)
		r.pairs(n, path, func(name string, key, value *yaml.Node) {
			if value.Kind != yaml.ScalarNode {
				r.bad(key, "%s.%s: write one value", path, name)
			}
			pairs[name] = value.Value
		})
		v.Set(reflect.ValueOf(pairs))
	case v.Kind() == reflect.Map && n.Kind == yaml.SequenceNode:
		entries := make([]string, len(n.Content))
		for i, x := range n.Content {
			entries[i] = target(x).Value // empty if it is not text, and so not a pair
		}
		if err := parseList(v, entries, tag); err != nil {
			r.bad(n, "%s: %w", path, err)
		}
	case n.Kind != yaml.ScalarNode:
		r.bad(n, "%s: write one value", path)
	default:
		if err := parse(v, n.Value, tag); err != nil {
			r.bad(n, "%s: %w", path, err)
		}
	}
}

// object sets the struct v, an entry of a list.
func (r *reader) object(n *yaml.Node, v reflect.Value, path string) {
	fields := make(map[string]int)
	var names []string
	for i := range v.NumField() {
		if name, ok := v.Type().Field(i).Tag.Lookup("setting"); ok {
			fields[name], names = i, append(names, name)
		}
	}
	r.pairs(n, path, func(name string, key, value *yaml.Node) {
		i, ok := fields[name]
		switch {
		case !ok:
			r.bad(key, "%s: unknown key %q; there are %s", path, name, strings.Join(names, ", "))
		case !null(value):
			r.value(value, v.Field(i), path+"."+name, v.Type().Field(i).Tag)
		}
	})
}

// target returns n, or the node that it is an alias of.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func null(n *yaml.Node) bool {
	n = target(n)
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// suggest returns the keys that an unknown one probably means: one that differs by a slip, the keys of the
// same section whose names have its words or are words of it, the one that its name contains with the
// section, or the keys of other sections with the same name. Keys that the command reads come before
// others. Otherwise it returns the keys of the section, or the sections.
func (r *reader) suggest(key string) string {
	section, name, inSection := strings.Cut(key, ".")
	var same []string
	for _, f := range r.fields {
		switch own, _, _ := strings.Cut(f.Key, "."); {
		case inSection && own == section:
			same = append(same, f.Key)
		case !inSection && !slices.Contains(same, own):
			same = append(same, own)
		}
	}
	for _, keys := range [][]string{r.read, r.fields.keys()} {
		if meant := likely(section, name, keys); len(meant) > 0 {
			for i := range meant {
				meant[i] = strconv.Quote(meant[i])
			}
			last := len(meant) - 1
			return "; did you mean " + strings.Join(append(meant[:max(last-1, 0)], strings.Join(meant[max(last-1, 0):], " or ")), ", ") + "?"
		}
	}
	return "; there are " + strings.Join(same, ", ")
}

// likely returns the keys that section.name, or the section without a name, probably means.
func likely(section, name string, keys []string) []string {
	if name == "" {
		var sections, parts []string
		for _, k := range keys {
			own, _, _ := strings.Cut(k, ".")
			if sections = append(sections, own); (hasWords(own, section) || hasWords(section, own)) && !slices.Contains(parts, own) {
				parts = append(parts, own)
			}
		}
		if found := closest(section, sections, len(section)); len(found) > 0 {
			return found
		}
		return parts
	}
	var same, parts, whole, others []string
	for _, k := range keys {
		own, last, _ := strings.Cut(k, ".")
		if own == section {
			same = append(same, k)
		}
		switch {
		case own == section && (hasWords(last, name) || hasWords(name, last) || shortens(last, name) || shortens(name, last)):
			parts = append(parts, k)
		case hasWords(name, own+"_"+last):
			whole = append(whole, k)
		case last == name:
			others = append(others, k)
		}
	}
	for _, found := range [][]string{closest(section+"."+name, same, len(name)), parts, whole, others} {
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// hasWords reports whether the words of part, which _ separates, follow each other in name.
func hasWords(name, part string) bool { return strings.Contains("_"+name+"_", "_"+part+"_") }

// shortens reports whether short is the begin of a name, as user is of username.
func shortens(name, short string) bool { return len(short) > slip && strings.HasPrefix(name, short) }

// slip is the number of changed bytes up to which a word is taken for another one, at most half of them.
const slip = 2

// closest returns the name that a slip in a word of that many bytes makes text; nil if there is none.
func closest(text string, names []string, word int) (found []string) {
	least := min(slip, (word+1)/2) + 1
	for _, n := range names {
		if d := distance(text, n); d < least {
			found, least = []string{n}, d
		}
	}
	return found
}

// distance returns the number of bytes to insert, remove or replace that make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, one to the left
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
