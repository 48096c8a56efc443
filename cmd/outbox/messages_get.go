package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	client "github.com/scylla-outbox/scylla-outbox/outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newMessagesGetCommand() *cobra.Command {
	return newGetCommand(&cobra.Command{
		Use:   "get MESSAGE_ID",
		Short: "Print the state and the history of a message",
		Long: `Print the state and the history of a message, without its payload: GET
/v1/messages/{id}/content and the console show it.`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}, schema.Schedule, (*operatorAPI).Message, printMessage)
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
