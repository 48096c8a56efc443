//go:build ignore

// Command grafana checks dashboards against Grafana's schema, as its Foundation SDK has it: it
// prints fields that Grafana does not know, or that have another type, and exits with 1. Fields
// that are absent have Grafana's defaults; the SDK does not check the fields of queries. It is run with -modfile=test/grafana.mod.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(prometheus.VariantConfig())
	failed := len(os.Args) < 2
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		if err == nil {
			err = errors.Join(check(text), notices(text))
		}
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns what the schema does not permit.
func check(text []byte) error {
	var d dashboard.Dashboard
	var bad []string
	for line := range strings.Lines(fmt.Sprint(d.UnmarshalJSONStrict(text))) {
		if line = strings.TrimSpace(line); line != "" && line != "<nil>" && !strings.HasSuffix(line, "required field is missing from input") {
			bad = append(bad, line)
		}
	}
	if err := d.Validate(); err != nil {
		bad = append(bad, err.Error())
	}
	if len(d.Panels) == 0 {
		bad = append(bad, "there is no panel")
	}
	if len(bad) == 0 {
		return nil
	}
	return errors.New(strings.Join(bad, "\n"))
}

// notices reports that planted mistakes pass.
func notices(text []byte) error {
	for _, mistake := range []struct{ right, wrong string }{
		{`"refresh":`, `"refreshes":`},
		{`"unit": "s"`, `"unit": 1`},
		{`"reduceOptions":`, `"reduceoptions":`},
	} {
		planted := bytes.Replace(text, []byte(mistake.right), []byte(mistake.wrong), 1)
		if bytes.Equal(planted, text) || check(planted) == nil {
			return fmt.Errorf("a planted %s passes", mistake.wrong)
		}
	}
	return nil
}
