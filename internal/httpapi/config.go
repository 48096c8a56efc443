package httpapi

import (
	"encoding/json"
	"io"

	"github.com/danielgtaylor/huma/v2"
)

// NewConfig returns the configuration that all APIs share, with the introduction of their
// description. version is that of the program.
func NewConfig(version, title, description string, problems []ProblemKind) huma.Config {
	c := huma.DefaultConfig(title, version)
	c.Info.Description = description + DescribeProblems(problems)
	c.Info.License = &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}
	// No $schema member in every response, and no pages that load scripts from other sites.
	c.CreateHooks = nil
	c.DocsPath, c.SchemasPath = "", ""
	format := huma.Format{Marshal: MarshalBody, Unmarshal: json.Unmarshal}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	BrokenBodies(&c)
	c.Transformers = append(c.Transformers, SetProblemTypes, inMilliseconds)
	Discreet(&c)
	return c
}

// SelfEncoder is a body that encodes itself. encoding/json would parse and copy what a MarshalJSON
// returns.
type SelfEncoder interface {
	// EncodeJSON returns the body as compact JSON.
	EncodeJSON() ([]byte, error)
}

// MarshalBody writes a body of a response, with a line end as encoding/json does.
func MarshalBody(w io.Writer, body any) error {
	if own, ok := body.(SelfEncoder); ok {
		b, err := own.EncodeJSON()
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	return huma.DefaultJSONFormat.Marshal(w, body)
}
