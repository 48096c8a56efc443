package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newTokenCommand() *cobra.Command {
	var role, output string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Create a bearer token and its entry for http.tokens or admin.tokens",
		Long: `Create a bearer token of 256 random bits and print it. It is not stored.
The second line is its entry for http.tokens (orders, messages, subscriptions),
admin.tokens (admin API and console), or both. The entry contains only the token's
hash. A token with --role 'consumer(orders-*|mail)' receives and acknowledges the
messages of these subscriptions, and does nothing else.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, hash := access.NewToken()
			t := access.Token{Name: args[0], Role: access.Role(role), Hash: hash}
			if _, err := access.New(access.Config{Tokens: []access.Token{t}}); err != nil {
				return cli.Usage(err)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "The token, which is not stored, and its entry for http.tokens or admin.tokens:")
			return cli.Show(cmd.OutOrStdout(), output, map[string]string{"token": secret, "entry": t.String()}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n%s\n", secret, t)
				return err
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	cmd.Flags().StringVar(&role, "role", string(access.Viewer),
		"viewer (reads), operator (also makes and changes orders and messages; replays, unblocks, suspends, resolves), admin (also discards, edits, cancels jobs, changes shards) consumer(NAMES) (consumes these subscriptions only) or producer(TOPICS) (sends messages to these topics only)")
	return cmd
}
