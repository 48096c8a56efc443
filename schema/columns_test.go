package schema

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	cqlComment = regexp.MustCompile(`--.*`)
	cqlTable   = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS \S+\.(\w+) \((.*?)\n\)`)
	cqlColumn  = regexp.MustCompile(`^(\w+) ([a-z<>, ]+?)( static)?( PRIMARY KEY)?,?$`)
)

// severalTypes are the names of columns with more than one type, with the reason.
var severalTypes = map[string]string{
	"id":      "the key of a table's rows: timeuuid where they are sorted by the time at which they were made",
	"total":   "a number in the charts; the money of an order in the example",
	"address": "where an instance is reached; that of a customer in the example",
	"value":   "what a list of dead letters is of; the content of a setting, which is a secret",
}

// A column of one name has one type in all tables, so that knowledge of one table applies to the
// next.
func TestColumns_OneTypePerName(t *testing.T) {
	t.Parallel()
	types, columns := make(map[string]map[string][]string), 0
	migrations, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		for _, table := range cqlTable.FindAllStringSubmatch(cqlComment.ReplaceAllString(m.text, ""), -1) {
			for line := range strings.Lines(table[2]) {
				line = strings.TrimSpace(line)
				if line == "" || strings.HasPrefix(line, "PRIMARY KEY") {
					continue
				}
				c := cqlColumn.FindStringSubmatch(line)
				if c == nil {
					t.Fatalf("%s: no column: %s", table[1], line)
				}
				if types[c[1]] == nil {
					types[c[1]] = make(map[string][]string)
				}
				types[c[1]][c[2]] = append(types[c[1]][c[2]], table[1])
				columns++
			}
		}
	}
	if columns < 200 {
		t.Errorf("found %d columns: the expressions are wrong", columns)
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		switch _, excepted := severalTypes[name]; {
		case len(types[name]) > 1 && !excepted:
			t.Errorf("column %s has several types: %v; rename one, or use one type", name, types[name])
		case len(types[name]) == 1 && excepted:
			t.Errorf("column %s has one type: remove the exception", name)
		}
	}
}
