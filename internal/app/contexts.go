package app

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/settings"
)

// A context is a configuration file in the user's folder, for operators of several
// installations. It is no setting: it selects the file that has them.
const (
	contextFlag     = "context"
	contextVariable = settings.Prefix + "CONTEXT"
	contextFile     = ".yml"
)

// contextName is a file name without folders.
var contextName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

func addContextFlag(cmd *cobra.Command) {
	cmd.Flags().String(contextFlag, "", "name of a configuration file in $XDG_CONFIG_HOME/outbox or ~/.config/outbox, without "+contextFile+" ["+contextVariable+"]")
	err := cmd.RegisterFlagCompletionFunc(contextFlag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		_, names := contexts(os.LookupEnv)
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag is defined above
	}
}

// ConfigFile returns the path of the configuration file of a command whose flags AddFlags
// made, and whether a context names it: --config, else --context, else OUTBOX_CONTEXT. The path
// is empty without them. Errors are of usage.
func ConfigFile(lookup func(string) (string, bool), flags *pflag.FlagSet) (path string, byContext bool, err error) {
	path, err = flags.GetString("config")
	if err != nil {
		return "", false, err
	}
	name, err := flags.GetString(contextFlag)
	switch {
	case err != nil:
		return "", false, err
	case path != "" && name != "":
		return "", false, cli.Usage(errors.New("--config and --context cannot be combined: both name the configuration file"))
	case path != "":
		return path, false, nil
	case name == "":
		if name, _ = lookup(contextVariable); name == "" {
			return "", false, nil
		}
	}
	dir, names := contexts(lookup)
	file := filepath.Join(dir, name+contextFile)
	if !contextName.MatchString(name) {
		return "", false, cli.Usage(fmt.Errorf("context %q: use the name of a file in %s, without %s", name, dir, contextFile))
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		list := "there are no contexts"
		if len(names) > 0 {
			list = "the contexts are " + strings.Join(names, ", ")
		}
		return "", false, cli.Usage(fmt.Errorf("context %q: no file %s; %s", name, file, list))
	}
	return file, true, nil
}

// contexts returns the folder of contexts, and their names in order.
func contexts(lookup func(string) (string, bool)) (dir string, names []string) {
	dir, _ = lookup("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification ignores relative paths
		home, _ := lookup("HOME")
		dir = filepath.Join(home, ".config")
	}
	dir = filepath.Join(dir, "outbox")
	files, _ := os.ReadDir(dir) // a missing folder has no contexts
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), contextFile); ok && contextName.MatchString(name) {
			names = append(names, name)
		}
	}
	return dir, names
}

// warnOfReaders logs the secrets in a context that other users of this machine can read.
func warnOfReaders(log *slog.Logger, path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o044 == 0 {
		return
	}
	file := settings.Of(defaults())
	if _, err := file.Load(path, NoEnv, pflag.NewFlagSet("", pflag.ContinueOnError)); err != nil {
		return // the command has reported it
	}
	var keys []string
	for _, f := range file {
		if f.HasLiteral() {
			keys = append(keys, f.Key)
		}
	}
	if len(keys) > 0 {
		log.Warn("other users can read secrets in a configuration file", "file", path, "settings", strings.Join(keys, ","),
			"hint", "chmod 600, or file:PATH instead of the secret")
	}
}

// strangers are the variables that are neither settings nor the context.
func strangers(environ []string) []string {
	return slices.DeleteFunc(Settings.Strangers(environ), func(name string) bool { return name == contextVariable })
}
