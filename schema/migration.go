package schema

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed cql/*/*.cql
var files embed.FS

// migration is one numbered file.
type migration struct {
	component Component // directory
	version   int
	name      string // file name without number and extension
	text      string // before parameters are filled in
}

// parameters are the parameters of the templates.
type parameters struct {
	Keyspace      string
	Replication   string
	TabletsClause string // empty for none

	CDCTTLSeconds, RowTTLSeconds, IdempotencyTTLSeconds int64
	// RowWindowMinutes is the compaction window of outbox_messages: a twelfth of the TTL of
	// its rows.
	RowWindowMinutes int64
}

// load reads the embedded migrations of all components, in order of their numbers, which must
// be 1, 2, 3 … without gaps.
func load(fsys fs.FS) ([]migration, error) {
	files, err := fs.Glob(fsys, "cql/*/*.cql")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	var out []migration
	for i, file := range files {
		component := Component(path.Base(path.Dir(file)))
		if _, ok := requires[component]; !ok {
			return nil, fmt.Errorf("migration %s: %w", file, &UnknownComponentError{component})
		}
		number, name, ok := strings.Cut(strings.TrimSuffix(path.Base(file), ".cql"), "_")
		version, err := strconv.Atoi(number)
		if !ok || err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s: the name must be %03d_name.cql", file, i+1)
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		out = append(out, migration{component: component, version: version, name: name, text: string(text)})
	}
	return out, nil
}

// checksum is over the statements before parameters are filled in, without
// comments and with white space collapsed: neither another TTL nor a better
// comment makes it another migration.
func (m migration) checksum() string {
	sum := sha256.Sum256([]byte(strings.Join(Statements(m.text), ";\n")))
	return hex.EncodeToString(sum[:16])
}

// condition is a part of a migration that is left out if a parameter is empty.
var condition = regexp.MustCompile(`(?s)\{\{if \.TabletsClause\}\}(.*?)\{\{end\}\}`)

// render returns the text of m with p filled in. It does not use text/template, which calls
// methods by name, so that the linker keeps the exported methods of all types.
func (m migration) render(p parameters) (string, error) {
	optional := "$1"
	if p.TabletsClause == "" {
		optional = ""
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	text := strings.NewReplacer(
		"{{.Keyspace}}", p.Keyspace, "{{.Replication}}", p.Replication, "{{.TabletsClause}}", p.TabletsClause,
		"{{.CDCTTLSeconds}}", number(p.CDCTTLSeconds), "{{.RowTTLSeconds}}", number(p.RowTTLSeconds),
		"{{.IdempotencyTTLSeconds}}", number(p.IdempotencyTTLSeconds), "{{.RowWindowMinutes}}", number(p.RowWindowMinutes),
	).Replace(condition.ReplaceAllString(m.text, optional))
	if _, unknown, ok := strings.Cut(text, "{{"); ok {
		unknown, _, _ = strings.Cut(unknown, "}}")
		return "", fmt.Errorf("migration %03d_%s: unknown parameter {{%s}}", m.version, m.name, unknown)
	}
	return text, nil
}

// rowWindows is the number of compaction windows in the TTL of rows.
const rowWindows = 12

func (o Options) parameters(tabletsClause string) (parameters, error) {
	replication, err := replicationClause(o.Replication)
	return parameters{
		Keyspace:              o.Keyspace,
		Replication:           replication,
		TabletsClause:         tabletsClause,
		CDCTTLSeconds:         int64(o.CDCTTL / time.Second),
		RowTTLSeconds:         int64(o.RowTTL / time.Second),
		IdempotencyTTLSeconds: int64(o.IdempotencyTTL / time.Second),
		RowWindowMinutes:      max(1, int64(o.RowTTL/rowWindows/time.Minute)),
	}, err
}

// Print writes the migrations of o.Components, by default of all but Orders, with the parameters
// of o, to apply them manually.
// It does not connect: with TabletsAuto the keyspace has no tablets clause, and
// a comment describes when one is needed.
func Print(w io.Writer, o Options) error {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	clause, _ := o.Tablets.clause(Server{Tablets: true, TabletsCDC: true})
	p, err := o.parameters(clause)
	if err != nil {
		return err
	}
	migrations, err := load(files)
	if err != nil {
		return err
	}
	wanted := o.Components
	if len(wanted) == 0 {
		wanted = byDefault()
	}
	if err := o.checkKeys(wanted); err != nil {
		return err
	}
	if o.Tablets == TabletsAuto {
		if _, err := fmt.Fprint(w, "-- From ScyllaDB 6.0 to 2025.3 add to CREATE KEYSPACE: AND tablets = {'enabled': false}\n\n"); err != nil {
			return err
		}
	}
	for _, m := range migrations {
		if !slices.Contains(wanted, m.component) {
			continue
		}
		text, err := m.render(p)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "-- %03d_%s (%s)\n%s\n", m.version, m.name, m.component, text); err != nil {
			return err
		}
	}
	return nil
}
