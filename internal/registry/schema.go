package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

const (
	// maxDepth bounds the nesting of values and of types.
	maxDepth = 64
	// maxJSON bounds the JSON of a payload.
	maxJSON = 8 << 20
)

var errTooLarge = fmt.Errorf("its JSON would have more than %d bytes", maxJSON)

// schema is one that can decode payloads.
type schema struct {
	kind sr.SchemaType
	// fit validates JSON; nil for other types, and with unfit.
	fit func(payload []byte) error
	// unfit is the reason why JSON cannot be validated.
	unfit error
	// decode returns the JSON of a payload without its header.
	decode func(payload []byte) (json.RawMessage, error)
}

// compile returns the schema of a text.
func compile(s sr.Schema, refs []reference) (_ *schema, err error) {
	// A defect of a parser must not end the process.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the schema is invalid: %v", v)
		}
	}()
	out := &schema{kind: s.Type}
	switch s.Type {
	case sr.TypeAvro:
		out.decode, err = compileAvro(s.Schema, refs)
	case sr.TypeProtobuf:
		out.decode, err = compileProtobuf(s.Schema, refs)
	case sr.TypeJSON:
		out.fit, out.unfit = compileJSON(s.Schema, refs)
		out.decode = func(b []byte) (json.RawMessage, error) {
			if !jsonform.Valid(b) {
				return nil, errors.New("the payload is not JSON")
			}
			return b, nil
		}
	default:
		err = fmt.Errorf("schemas of type %s are not supported", s.Type)
	}
	if err != nil {
		return nil, errors.New(clip(err.Error()))
	}
	decode := out.decode
	out.decode = func(b []byte) (_ json.RawMessage, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the payload is invalid: %v", v)
			}
		}()
		return decode(b)
	}
	return out, nil
}

// root is the URL of a JSON Schema for its compiler; names of references are relative to it.
const root = "registry:///"

func compileJSON(text string, refs []reference) (func([]byte) error, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7) // as registries do
	c.AssertFormat()
	c.UseLoader(named(refs))
	if err := c.AddResource(root, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(root)
	if err != nil {
		return nil, err
	}
	return func(payload []byte) error {
		if !jsonform.Valid(payload) {
			return errors.New("it is not JSON")
		}
		problems, err := jsonform.Fit(s, payload)
		if err == nil && len(problems) > 0 {
			err = errors.New(clip(strings.Join(problems, "; ")))
		}
		return err
	}, nil
}

// named loads the references of a JSON Schema, and nothing else.
type named []reference

// Load implements jsonschema.URLLoader.
func (n named) Load(url string) (any, error) {
	for _, ref := range n {
		if url == ref.name || strings.HasSuffix(url, "/"+strings.TrimPrefix(ref.name, "/")) {
			return jsonschema.UnmarshalJSON(bytes.NewReader([]byte(ref.Schema.Schema)))
		}
	}
	return nil, fmt.Errorf("%.200s is no reference of the schema: register it as one", url)
}
