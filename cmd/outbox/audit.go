package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newAuditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List the audit trail: who changed what, when and why",
	}
	cmd.AddCommand(newAuditListCommand())
	return cmd
}

// auditTable prints entries of the audit trail as a list.
var auditTable = cli.Table[admin.AuditEntry]{
	Header: "REQUESTED\tACTOR\tSUMMARY\tTARGET\tSTATE\tACTION\tREASON\tROLE\tREMOTE\tOUTCOME\tDETAIL",
	Wide:   6,
	Row: func(w io.Writer, l admin.AuditEntry) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cli.At(w, l.At), cli.Clean(l.Actor, 40), cli.Clean(l.Summary, 160), cli.Clean(l.Target, 60), l.State,
			cli.Clean(l.Action, 40), cli.Clean(l.Reason, 80), l.Role, cli.Clean(l.Remote, 60), cli.Clean(l.Outcome, 120), cli.Clean(l.Detail, 200))
	},
	None: "no entry matches",
}

func newAuditListCommand() *cobra.Command {
	var f listing
	var q adminclient.AuditQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List changes by operators, newest first",
		Long: `List changes by operators, newest first: those of outbox dlq, scheduled, subscriptions,
relay reshard, relay --backfill-from, verify --repair and schema new-epoch, of the admin
API, the subscriptions API and the console. Without --since it lists those of the last
30 days.

The state intended of an old entry means that the process ended before it recorded the
result; unknown means that the database did not report it. The history of the dead
letter or of the job contains the result.`,
	}
	f.addFlags(cmd, "changes", "were requested", dlqListed)
	cmd.Flags().StringVar(&q.Actor, "actor", "", "changes by this user")
	cmd.Flags().StringSliceVar(&q.Actions, "action", nil, "changes of these kinds, such as create-job or purge-subscription")
	return newListCommand(cmd, auditTable, query[page[admin.AuditEntry]]{
		check: f.check,
		read: func(ctx context.Context, api *operatorAPI, _ []string) (p page[admin.AuditEntry], err error) {
			q.Since, q.Until = f.since, f.until
			p.entries, p.next, err = api.Audit(ctx, q, f.paging())
			return p, err
		},
	})
}
