package engines

import (
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// Settings returns the settings of a configuration file and of flags, for processes that use
// the engines. Connections and access come from the defaults and the flags: scylla (except
// scylla.keyspace), kafka, http, hints and log of the file have no effect, nor has the environment.
// An empty path is no file.
func Settings(path string, flags *pflag.FlagSet) (*app.Config, error) {
	c, err := app.LoadConfigFrom(path, app.NoEnv, flags)
	if err != nil || path == "" {
		return c, err
	}
	base, err := app.LoadConfigFrom("", app.NoEnv, flags)
	if err != nil {
		return nil, err
	}
	base.Scylla.Keyspace = c.Scylla.Keyspace
	c.Scylla, c.Kafka, c.HTTP, c.Hints, c.Log = base.Scylla, base.Kafka, base.HTTP, base.Hints, base.Log
	return c, nil
}
