package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/outbox/client"
)

func newMessagesGetCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "get MESSAGE_ID",
		Short: "Print the state and the history of a message",
		Long: `Print the state and the history of a message, without its payload: GET
/v1/messages/{id}/content and the console show it.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err == nil {
				err = cli.CheckOutput(output)
			}
			if err != nil {
				return err
			}
			return withScheduled(cmd, "", func(api *operatorAPI) error {
				m, err := api.Message(cmd.Context(), ids[0].String())
				if err != nil {
					return err
				}
				if output != "table" {
					return cli.PrintAs(cmd.OutOrStdout(), output, m)
				}
				return printMessage(cmd.OutOrStdout(), &m)
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionAPI)
	return cmd
}

func printMessage(out io.Writer, m *client.Message) error {
	columns := cli.NewColumns(out)
	field := cli.FieldsOn(columns)
	due, record := "", ""
	if m.DeliverAt != nil {
		due = m.DeliverAt.UTC().Format(time.RFC3339)
	}
	if m.Record != nil {
		record = fmt.Sprintf("%s[%d]@%d", m.Record.Topic, m.Record.Partition, m.Record.Offset)
	}
	field("message", m.ID)
	field("state", m.State)
	field("topic", m.Topic)
	field("key", m.Key)
	field("accepted", m.CreatedAt.UTC().Format(time.RFC3339))
	field("due", due)
	field("record", record)
	field("note", m.Note)
	fmt.Fprintln(columns, "\nTIME\tSTATE\tDETAIL")
	for _, s := range m.History {
		fmt.Fprintf(columns, "%s\t%s\t%s\n", s.At.UTC().Format(cli.ListTime), s.State, cli.Clean(s.Detail, 160))
	}
	return columns.Flush()
}
