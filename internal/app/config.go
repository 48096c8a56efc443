package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/settings"
)

// AddFlags adds --config, --context and the flags of the sections to the command. Secrets have no flag.
func AddFlags(cmd *cobra.Command, sections ...string) {
	cmd.Flags().String("config", "", "configuration file (YAML); flags take precedence over the environment, the environment over the file")
	addContextFlag(cmd)
	c := defaults()
	if addr, ok := OpsAddrs[cmd.Name()]; ok {
		c.Ops.Addr = addr
	}
	settings.Of(c).AddFlags(cmd.Flags(), sections...)
	if err := cmd.Flags().SetAnnotation("config", sectionsAnnotation, sections); err != nil {
		panic(err) // the flag is defined above
	}
}

// sectionsAnnotation is the annotation of --config with the sections of the command. Secrets
// and objects of other sections may belong to another machine.
const sectionsAnnotation = "outbox_sections"

// rulesKey is the key of the list of rules. Like the list of tables it has no
// flag and no environment variable.
const rulesKey = "relay.rules"

// LoadConfig reads the configuration of a command whose flags AddFlags made:
// flag over environment over file over default. All problems are in one error,
// as an error of usage.
func LoadConfig(cmd *cobra.Command) (*Config, error) {
	path, byContext, err := ConfigFile(os.LookupEnv, cmd.Flags())
	if err != nil {
		return nil, err
	}
	c, err := LoadConfigFrom(path, os.LookupEnv, cmd.Flags())
	if err != nil {
		return nil, err
	}
	log, err := c.Log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	warnOfStrangers(log, os.Environ())
	if byContext {
		warnOfReaders(log, path)
	}
	return c, nil
}

// WithConfig returns the RunE of a command that takes no arguments: it calls f with the
// configuration.
func WithConfig(f func(*cobra.Command, *Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		c, err := LoadConfig(cmd)
		if err != nil {
			return err
		}
		return f(cmd, c)
	}
}

// LoadConfigFrom is LoadConfig of a file, an environment and flags. The default of
// ops.addr is that of its flag.
func LoadConfigFrom(path string, lookup func(string) (string, bool), flags *pflag.FlagSet) (*Config, error) {
	c, _, err := loadFrom(path, lookup, flags)
	return c, err
}

// CheckedSettings returns the settings of a command whose flags AddFlags made, like
// LoadConfig, and a configuration of them. An unknown environment variable with the prefix
// of settings is an error.
func CheckedSettings(cmd *cobra.Command) (settings.Fields, *Config, error) {
	path, _, err := ConfigFile(os.LookupEnv, cmd.Flags())
	if err != nil {
		return nil, nil, err
	}
	c, all, err := loadFrom(path, os.LookupEnv, cmd.Flags())
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, name := range strangers(os.Environ()) {
		errs = append(errs, fmt.Errorf("%s is no variable of a setting", name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, cli.Usage(cli.WithHint(err, "outbox config print lists the variables"))
	}
	return all, c, nil
}

// loadFrom is LoadConfigFrom, and returns the settings too.
func loadFrom(path string, lookup func(string) (string, bool), flags *pflag.FlagSet) (*Config, settings.Fields, error) {
	c := defaults()
	if f := flags.Lookup(FlagOpsAddr); f != nil {
		c.Ops.Addr = f.DefValue
	}
	all := settings.Of(c)
	overridden, err := all.Load(path, lookup, flags)
	c.overridden = overridden
	var sections []string
	if f := flags.Lookup("config"); f != nil {
		sections = f.Annotations[sectionsAnnotation]
	}
	err = errors.Join(err, all.Reveal(sections...))
	if len(sections) == 0 || slices.Contains(sections, SectionRetention) {
		err = errors.Join(err, c.Archive.check())
	}
	if _, wrong := dlq.NewStrategyRules(c.Relay.Rules); wrong != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", rulesKey, wrong))
	}
	err = errors.Join(err, c.Relay.checkShards())
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	return c, all, nil
}

// warnOfStrangers logs the variables of environ that have the prefix of settings and are not
// settings: a misspelt variable would leave a default in force. It is not an error, because
// other software may use such names.
func warnOfStrangers(log *slog.Logger, environ []string) {
	for _, name := range strangers(environ) {
		log.Warn("unknown environment variable ignored", "name", name,
			"hint", "--help lists the variable of each setting")
	}
}

// NoEnv is an empty environment: outbox-dev run ignores a shell's settings of real clusters.
func NoEnv(string) (string, bool) { return "", false }
