package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "table, json or yaml")
}

func checkOutput(output string) error { return oneOf("output", output, "table", "json", "yaml") }

// printAs prints v as json or yaml.
func printAs(w io.Writer, format string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		// JSON is YAML; only its style has to go. So both have the same keys.
		var node yaml.Node
		if err := yaml.Unmarshal(b, &node); err != nil {
			return err
		}
		plainStyle(&node)
		var out bytes.Buffer
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := enc.Encode(&node); err != nil {
			return err
		}
		b = bytes.TrimRight(out.Bytes(), "\n")
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// plainStyle takes JSON's quotes and brackets off.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}

// listTime is how lists write a time, which is UTC.
const listTime = "2006-01-02 15:04:05Z"

// newColumns writes lines of cells, with a tab between two, as columns. Flush it.
func newColumns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// fieldsOn is what writes a field of one thing, its name and value, as a line of
// columns; a value that is empty as text is left out.
func fieldsOn(columns io.Writer) func(name string, value any) {
	return func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			fmt.Fprintf(columns, "%s\t%s\n", name, clean(text, 0))
		}
	}
}

// table is how a command prints things as a list.
type table[T any] struct {
	// header names the columns, and row writes one thing's, with tabs between them.
	header string
	row    func(io.Writer, T)
	// view is a thing for scripts.
	view func(T) any
	// none is said where there is nothing.
	none string
	// first says which come first; empty means the newest.
	first string
}

// print prints what was found in a form that checkOutput knows. What is not part of the
// list goes to the standard error: that it is empty, or has more than is printed.
func (t table[T]) print(cmd *cobra.Command, output string, found []T, more bool) error {
	out, errOut := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if output != "table" {
		views := make([]any, len(found))
		for i, x := range found {
			views[i] = t.view(x)
		}
		return printAs(out, output, views)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(errOut, t.none)
		return err
	}
	tw := newColumns(out)
	fmt.Fprintln(tw, t.header)
	for _, x := range found {
		t.row(tw, x)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(errOut, "only the %s %d; --limit 0 shows all\n", cmp.Or(t.first, "newest"), len(found))
	}
	return nil
}

// clean is text of unknown origin for a terminal: no control characters, which
// could do anything there, and no more than n characters.
func clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.Is(unicode.C, r) {
			return '·'
		}
		return r
	}, s)
	if r := []rune(s); n > 0 && len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
