package dlq

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// Schemas are the JSON Schemas of event types that payloads must fit. A nil
// *Schemas has none. It is safe for concurrent use.
type Schemas struct{ byType map[string]*jsonschema.Schema }

// SchemaError reports the places where a payload does not match the schema of its event
// type.
type SchemaError struct {
	EventType string
	// Problems contain the place, as a JSON pointer, and the error.
	Problems []string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the payload does not fit the schema of %s: %s", e.EventType, strings.Join(e.Problems, "; "))
}

// Is makes errors.Is(err, ErrInvalidEdit) true.
func (e *SchemaError) Is(target error) bool { return target == ErrInvalidEdit }

// LoadSchemas compiles the schemas of a directory, one file <event type>.json each.
// Schemas may refer to other files of the directory, and to nothing outside it. An
// empty name means no schemas.
func LoadSchemas(dir string) (*Schemas, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // nil has no schemas
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the schemas of event types: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the schemas of event types: %w", err)
	}
	defer func() { _ = root.Close() }() // it was read from alone
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseLoader(within{root.FS()})
	s := &Schemas{byType: make(map[string]*jsonschema.Schema)}
	var errs []error
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || f.IsDir() {
			continue
		}
		schema, err := compiler.Compile(schemaRoot + f.Name())
		if err != nil {
			errs = append(errs, fmt.Errorf("schema %s: %w", filepath.Join(dir, f.Name()), err))
			continue
		}
		s.byType[name] = schema
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// schemaRoot is the URL of the directory for the compiler.
const schemaRoot = "file:///"

// within loads files of a directory alone.
type within struct{ files fs.FS }

// Load reads and parses a file.
func (w within) Load(url string) (any, error) {
	name, ok := strings.CutPrefix(url, schemaRoot)
	if !ok {
		return nil, fmt.Errorf("%s: only files beside the schema are read", url)
	}
	b, err := fs.ReadFile(w.files, name)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(b))
}

// Has reports whether the event type has a schema.
func (s *Schemas) Has(eventType string) bool { return s != nil && s.byType[eventType] != nil }

// Validate returns nil if the payload fits the schema of its event type, or if
// that has none, and a *SchemaError if not.
func (s *Schemas) Validate(eventType string, payload []byte) error {
	if !s.Has(eventType) {
		return nil
	}
	problems, err := jsonform.Fit(s.byType[eventType], payload)
	if err != nil {
		return fmt.Errorf("validate a payload of %s: %w", eventType, err)
	}
	if len(problems) > 0 {
		return &SchemaError{eventType, problems}
	}
	return nil
}
