package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	// written is a command line in a document: in backticks, or a line of a block.
	written = regexp.MustCompile("(?m)(?:`|^(?:    |\\$ )?(?:[A-Z_]+=\\S+ )*)(?:outbox|go run ./cmd/outbox) ([a-z][^`\n#]*)")
	// dotted is what settings look like, in backticks.
	dotted = regexp.MustCompile("`((?:scylla|kafka|http|admin|relay|dlq|schema|log|messages|watch|react|notifications|retention)\\.[a-z_]+)\\b[^.(/`]*`")
)

// Every command, flag and setting that a document names is there.
func TestDocs_CommandsAndSettings(t *testing.T) {
	t.Parallel()
	keys := []string{tablesKey, rulesKey, reactRulesKey}
	for _, s := range settings {
		keys = append(keys, s.key())
	}
	commands, named := 0, 0
	err := filepath.WalkDir("../..", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && e.Name() == ".git" {
			return filepath.SkipDir
		}
		if filepath.Ext(file) != ".md" || e.Name() == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range written.FindAllStringSubmatch(string(text), -1) {
			commands++
			if problem := misspelt(strings.Fields(m[1])); problem != "" {
				t.Errorf("%s: outbox %s: %s", file, m[1], problem)
			}
		}
		for _, m := range dotted.FindAllStringSubmatch(string(text), -1) {
			named++
			if !slices.Contains(keys, m[1]) {
				t.Errorf("%s: %s is no setting", file, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if commands < 50 || named < 50 {
		t.Errorf("found %d commands and %d settings: the patterns are wrong", commands, named)
	}
}

// misspelt says what of a command line, without the program, there is not. A word may
// be several, a|b.
func misspelt(words []string) string {
	cmds := []*cobra.Command{newRoot(io.Discard, io.Discard)}
	for i, word := range words {
		if strings.HasPrefix(word, "-") || !cmds[0].HasSubCommands() {
			for _, flag := range words[i:] {
				name, ok := strings.CutPrefix(flag, "--")
				name, _, _ = strings.Cut(strings.TrimRight(name, ".,;:)]"), "=")
				if ok && name != "" && name != "help" && cmds[0].Flag(name) == nil {
					return "it has no flag --" + name
				}
			}
			return ""
		}
		var next []*cobra.Command
		for name := range strings.SplitSeq(word, "|") {
			at := slices.IndexFunc(cmds[0].Commands(), func(c *cobra.Command) bool { return c.Name() == strings.TrimRight(name, ".,;:)") })
			if at < 0 {
				return "there is no " + name
			}
			next = append(next, cmds[0].Commands()[at])
		}
		cmds = next
	}
	return ""
}
