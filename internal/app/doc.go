// Package app turns the configuration of a process into its parts: sessions, listeners,
// APIs, relays, and the background tasks beside them.
//
// # Vocabulary
//
//   - setting: a value that flag, environment or file set; a field of [Config].
//   - section: a group of settings; a command has the flags of the sections that it uses.
//   - part: an object of another package that a function of this one builds from [Config],
//     such as a relay or the messages API.
//   - ops listener: /metrics, /livez and /readyz of a process ([OpsServer]), from its
//     start on. Not the admin API, which operators use.
//   - reception: the phase in which an API listens and answers 503, while the database is
//     not connected ([ServeAPI]).
//   - upkeep: notifications and retention of dead letters; one process at a time does it
//     ([Upkeep]).
//   - sharing: the relays of a process, one per table and owned shard ([Sharing]).
//
// # Lifecycle of a service
//
// [LoadConfig] reads the configuration. [Serving] adds a logger and a teardown. [WithOps]
// and [ServeAPI] add the check of the configuration, the ops listener and the
// session, in this order: a wrong configuration is an error before the database is needed,
// and a database that is away is not an error. Every part registers the resources that it
// opens with the teardown, which runs in reverse order.
//
// # Not in this package
//
// Commands, flags that are not settings, and output are in cmd/outbox and internal/cli.
// Package internal/settings defines how a setting is declared and read. The parts do not
// know this package: each has a config struct of its own.
package app
