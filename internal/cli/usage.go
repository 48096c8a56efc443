package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// GroupAnnotation is the annotation of a flag with the heading under which --help lists it.
const GroupAnnotation = "outbox_group"

// usage prints the usage of a command: its own flags first, then flags in groups.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintln(w, "Usage:")
	if cmd.Runnable() {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(w, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	groups := make(map[string]*pflag.FlagSet)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		name := ""
		if a := f.Annotations[GroupAnnotation]; len(a) > 0 {
			name = a[0]
		}
		if groups[name] == nil {
			groups[name] = pflag.NewFlagSet(name, pflag.ContinueOnError)
		}
		groups[name].AddFlag(f)
	})
	for _, name := range slices.Sorted(maps.Keys(groups)) { // the command's own flags have the empty name
		heading := "Flags"
		if name != "" {
			heading = "Settings of " + name
		}
		printFlags(w, heading, groups[name])
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%q describes a command.\n", cmd.CommandPath()+" [command] --help")
	}
	return nil
}

func printFlags(w io.Writer, heading string, flags *pflag.FlagSet) {
	if text := strings.TrimRight(flags.FlagUsages(), "\n"); text != "" {
		fmt.Fprintf(w, "\n%s:\n%s\n", heading, text)
	}
}

// prepare makes each command with subcommands reject unknown ones, with suggestions, unless its usage
// has arguments, and print its help without one.
func prepare(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		prepare(c)
	}
	if !cmd.HasSubCommands() {
		return
	}
	if cmd.RunE == nil && cmd.Run == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if strings.Contains(cmd.Use, " ") {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return Usage(WithHint(err, "did you mean %s?", strings.Join(near, " or ")))
		}
		return err
	}
}

// Examples sets the examples of the commands of root, by their paths without root's name.
// It returns an error for a path without a command.
func Examples(root *cobra.Command, examples map[string]string) error {
	var errs []error
	for path, text := range examples {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 || cmd == root {
			errs = append(errs, fmt.Errorf("example of %q: there is no such command", path))
			continue
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		cmd.Example = "  " + strings.Join(lines, "\n  ")
	}
	return errors.Join(errs...)
}
