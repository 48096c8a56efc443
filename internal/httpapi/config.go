package httpapi

import "github.com/danielgtaylor/huma/v2"

// NewConfig returns the configuration that all APIs share, with the introduction of their
// description. version is that of the program.
func NewConfig(version, title, description string, problems []ProblemKind) huma.Config {
	c := huma.DefaultConfig(title, version)
	c.Info.Description = description + DescribeProblems(problems)
	c.Info.License = &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}
	// No $schema member in every response, and no pages that load scripts from other sites.
	c.CreateHooks = nil
	c.DocsPath, c.SchemasPath = "", ""
	BrokenBodies(&c)
	c.Transformers = append(c.Transformers, SetProblemTypes, inMilliseconds)
	Discreet(&c)
	return c
}
