package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// operatorAPI is the admin API that a command uses: that of a server (api.admin_url), or one in
// this process on the configured database.
type operatorAPI struct {
	*adminclient.Client
	// runJob runs a job in this process. It is nil for a server, which runs its jobs.
	runJob func(ctx context.Context, id string) error
}

// withAPI is withAPIOf for a command that needs dead letters.
func withAPI(cmd *cobra.Command, actor string, f func(*operatorAPI) error) (err error) {
	return withAPIOf(cmd, actor, []schema.Component{schema.DeadLetters}, f)
}

// withAPIOf runs f with the admin API of the command's configuration. Changes are made by
// the token's owner of a server, otherwise by actor, or by the user of this machine if it
// is empty. Without a server the database must have the needed components.
func withAPIOf(cmd *cobra.Command, actor string, needed []schema.Component, f func(*operatorAPI) error) (err error) {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return err
	}
	if c.API.AdminURL != "" {
		if actor != "" {
			return cli.Usage(errors.New("--actor and --api-admin-url cannot be combined: the audit trail contains the owner of the token"))
		}
		client, err := c.API.Client()
		if err != nil {
			return err
		}
		return apiFix(cmd, f(&operatorAPI{Client: client}), true)
	}
	if actor == "" {
		actor = thisUser()
	}
	return withLocalAPI(cmd, c, actor, needed, f)
}

// withLocalAPI runs f with the admin API in this process, on the configured database.
func withLocalAPI(cmd *cobra.Command, c *app.Config, actor string, needed []schema.Component, f func(*operatorAPI) error) (err error) {
	local, err := app.OpenLocalAPI(cmd.Context(), c, app.LocalConfig{
		Needs: needed, Actor: actor, Archive: cmd.Flags().Lookup("archive-url") != nil, Schemas: cmd.Flags().Lookup("dlq-schemas") != nil,
		Topics: cmd.Flags().Lookup("kafka-seeds") != nil,
		Runner: jobs.RunnerConfig{Poll: jobPoll, Lease: jobLease},
		Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()
	return apiFix(cmd, f(&operatorAPI{Client: local.Client, runJob: func(ctx context.Context, id string) error {
		job, err := gocql.ParseUUID(id)
		if err != nil {
			return fmt.Errorf("job %q: %w", id, err)
		}
		_, err = local.Runner.RunJob(ctx, job)
		return err
	}}), false)
}

// apiFix adds the next step to an error of the API. remote reports that it is one of a
// server.
func apiFix(cmd *cobra.Command, err error, remote bool) error {
	if _, ok := errors.AsType[*adminclient.UnreachableError](err); ok && remote {
		return cli.WithHint(err, "--api-admin-url or OUTBOX_API_ADMIN_URL is the URL of 'outbox admin' (admin.addr); check that it runs there, and its certificate (--api-tls-ca)")
	}
	p, ok := errors.AsType[*adminclient.Error](err)
	if !ok || cli.FindHint(err) != "" {
		return err
	}
	switch {
	case p.OutcomeUnknown && !ofDeadLetters(p.Path):
		return cli.WithHint(err, "the change may have been made, or a part of it; run the same command again, which completes it")
	case p.OutcomeUnknown:
		return cli.WithHint(err, "the change may have been made; outbox dlq jobs list and outbox dlq get print what was changed")
	}
	switch hint := statusHint(p, remote); {
	case slices.ContainsFunc(p.Fields, func(f adminclient.Field) bool { return strings.HasPrefix(f.Message, "is unknown") }):
		return cli.WithHint(err, "the server is older than this command: omit the flag, or update 'outbox admin'")
	case p.Status == http.StatusUnprocessableEntity, p.Status == http.StatusBadRequest:
		return cli.Usage(cli.WithHint(err, "%s --help describes the flags", cmd.CommandPath()))
	case hint != "":
		return cli.WithHint(err, "%s", hint)
	}
	return err
}

// ofDeadLetters reports whether a path is that of dead letters or their jobs.
func ofDeadLetters(path string) bool {
	return strings.HasPrefix(path, "/v1/dead-letters") || strings.HasPrefix(path, "/v1/jobs")
}

// statusHint returns the next step after a response with an error status, empty for none.
func statusHint(p *adminclient.Error, remote bool) string {
	switch {
	case p.Status == http.StatusUnauthorized:
		return "OUTBOX_API_TOKEN (api.token) must contain a token of admin.tokens of the server; 'outbox token NAME --role ROLE' creates one"
	case p.Status == http.StatusForbidden:
		return "OUTBOX_API_TOKEN (api.token) needs a token with that role; discard, edit, purge, restore, archive, reshard and dlq jobs cancel need admin, other changes operator"
	case p.Type == httpapi.TypeSubscriptionNotFound:
		return "outbox subscriptions list prints the names"
	case p.Status == http.StatusNotFound && p.Type != httpapi.TypeNotFound, p.Status == http.StatusMethodNotAllowed:
		return "--api-admin-url or OUTBOX_API_ADMIN_URL must be the URL of 'outbox admin', of this version or a later one"
	case p.Status == http.StatusNotFound && strings.Contains(p.Path, "/jobs/"):
		return "outbox dlq jobs list prints the ids"
	case p.Status == http.StatusNotFound && p.Hint != "":
		return strings.ReplaceAll(p.Hint, "?aggregate_id=", "--aggregate-id")
	case p.Status == http.StatusNotFound && strings.Contains(p.Path, "/dead-letters/"):
		return "outbox dlq list --status all prints the ids"
	case p.Status == http.StatusNotFound && strings.HasPrefix(p.Path, "/v1/aggregates/"):
		return "outbox events list prints the newest events with their aggregates"
	case p.Status == http.StatusNotFound:
		return "outbox dlq archive list prints the objects; they expire after retention.keep"
	case p.Status == http.StatusPreconditionFailed:
		return "it was changed concurrently: outbox dlq get prints it; then retry"
	case p.Status == http.StatusInternalServerError && !remote:
		return "if a table or a column is missing, outbox schema migrate adds it; outbox schema status lists the missing migrations"
	case p.Status >= http.StatusInternalServerError && remote && p.Hint == "":
		return "the log of the server contains the cause; retry later"
	}
	return p.Hint
}
