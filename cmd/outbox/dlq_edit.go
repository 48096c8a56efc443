package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// dlqEditFlags contains the flags of outbox dlq edit.
type dlqEditFlags struct {
	dlqConfirm
	dlqActor
	payloadFile, contentType, output string
	headers, without                 []string
}

func newDLQEditCommand() *cobra.Command {
	var f dlqEditFlags
	cmd := &cobra.Command{
		Use:   "edit EVENT_ID",
		Short: "Edit payload or headers of a dead letter and replay it",
		Long: `Edit payload or headers of a dead letter and replay it. The relay publishes it under
a new id, at its place in the order of its aggregate. The header ce_originalid of the
record contains the original id. The original is kept; 'outbox dlq get' prints both.

Without --payload-file, --header, --without-header or --content-type the command
opens the payload in $VISUAL or $EDITOR; JSON is indented there, and stored without
white space. If the event type has a JSON Schema (dlq.schemas), the payload must fit
it; so must it that of its topic (kafka.schema_registry). The command prints the
difference first.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeDeadLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err == nil {
				err = f.requireReason(f.dryRun)
			}
			if err != nil {
				return err
			}
			return withAPI(cmd, f.actor, func(api *operatorAPI) error {
				l, err := api.DeadLetter(cmd.Context(), ids[0].String())
				if err != nil {
					return err
				}
				return f.edit(cmd, api, &l)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.payloadFile, "payload-file", "", "read the new payload from this file, - for standard input")
	fl.StringArrayVar(&f.headers, "header", nil, "set a header, name=value; may be repeated")
	fl.StringArrayVar(&f.without, "without-header", nil, "remove a header; may be repeated")
	fl.StringVar(&f.contentType, "content-type", "", "set the content type")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionDLQ, app.SectionAPI)
	return cmd
}

func (f *dlqEditFlags) edit(cmd *cobra.Command, api *operatorAPI, l *admin.DeadLetterBody) error {
	// A refusal comes before the editor.
	if _, err := api.Edit(cmd.Context(), l.EventID, l.Version, admin.EditBody{DryRun: true}, ""); err != nil {
		return err
	}
	_, before := contents(l)
	after, err := f.applyChanges(cmd, before)
	if err != nil {
		return err
	}
	change := newEditBody(before, after)
	change.DryRun = true
	out, err := api.Edit(cmd.Context(), l.EventID, l.Version, change, "")
	switch {
	case err != nil:
		return err
	case out.Diff.Empty():
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "nothing was changed")
		return err
	case len(out.Problems) > 0:
		return cli.WithHint(errors.New(strings.Join(out.Problems, "; ")), "nothing was changed")
	}
	if f.output == "table" || !f.dryRun {
		printDifference(cmd.ErrOrStderr(), &out.Diff)
		checked := "its event type has no schema"
		if out.Schema {
			checked = "the payload fits the schema of " + cli.Clean(l.EventType, 60)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s; %s seq %d of %s is published in its place, under a new id\n", checked, cli.Clean(l.EventType, 60), l.Sequence, cli.Clean(l.AggregateID, 60))
	}
	if !f.dryRun {
		if err := f.confirm(cmd, "edit the event and publish it?"); err != nil {
			return err
		}
		change.DryRun = false
		if out, err = api.Edit(cmd.Context(), l.EventID, l.Version, change, f.reason); err != nil {
			return err
		}
	}
	if f.output != "table" {
		return cli.PrintAs(cmd.OutOrStdout(), f.output, out)
	}
	if !f.dryRun {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "event %s is to be published as %s\n", l.EventID, out.NewID)
	}
	return err
}

// newEditBody returns the request that changes the content of a dead letter.
func newEditBody(before, after dlq.Edit) (b admin.EditBody) {
	if !bytes.Equal(before.Payload, after.Payload) {
		coded := base64.StdEncoding.EncodeToString(after.Payload)
		b.PayloadBase64 = &coded
	}
	if before.ContentType != after.ContentType {
		b.ContentType = &after.ContentType
	}
	if !maps.Equal(before.Headers, after.Headers) {
		if after.Headers == nil {
			after.Headers = map[string]string{}
		}
		b.Headers = &after.Headers
	}
	return b
}

// printDifference shows a difference; its text is of unknown origin.
func printDifference(w io.Writer, d *dlq.Difference) {
	for line := range strings.Lines(d.Payload) {
		fmt.Fprintln(w, cli.Clean(strings.TrimSuffix(line, "\n"), 0))
	}
	for _, h := range d.Headers {
		if h.Old != nil {
			fmt.Fprintf(w, "-%s: %s\n", cli.Clean(h.Name, 0), cli.Clean(*h.Old, 0))
		}
		if h.New != nil {
			fmt.Fprintf(w, "+%s: %s\n", cli.Clean(h.Name, 0), cli.Clean(*h.New, 0))
		}
	}
}

// applyChanges returns the content after the flags or the editor.
func (f *dlqEditFlags) applyChanges(cmd *cobra.Command, e dlq.Edit) (dlq.Edit, error) {
	e.Headers = maps.Clone(e.Headers)
	for _, name := range f.without {
		if _, ok := e.Headers[name]; !ok {
			return e, cli.Usage(fmt.Errorf("--without-header %q: the event has no such header", name))
		}
		delete(e.Headers, name)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return e, cli.Usage(fmt.Errorf("--header %q: write name=value", h))
		}
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers[name] = value
	}
	if f.contentType != "" {
		e.ContentType = f.contentType
	}
	var err error
	switch {
	case f.payloadFile == "-":
		e.Payload, err = io.ReadAll(cmd.InOrStdin())
	case f.payloadFile != "":
		e.Payload, err = os.ReadFile(f.payloadFile)
	case len(f.headers)+len(f.without) == 0 && f.contentType == "":
		e.Payload, err = editPayload(cmd, e.Payload)
	}
	if err != nil {
		return e, fmt.Errorf("read the new payload: %w", err)
	}
	return e, nil
}

// editPayload opens a payload in the user's editor.
func editPayload(cmd *cobra.Command, payload []byte) ([]byte, error) {
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return nil, cli.Usage(cli.WithHint(errors.New("there is no terminal for the editor"), "use --payload-file, --header, --without-header or --content-type"))
	}
	return editWith(cmd.Context(), editor(), payload, in, cmd.ErrOrStderr())
}

// editor returns the command of the editor.
func editor() string {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return "vi"
}

// editWith opens a payload in an editor and returns the saved text. JSON is indented for the
// editor and compacted afterwards; an unchanged payload is returned byte for byte.
func editWith(ctx context.Context, editor string, payload []byte, in io.Reader, out io.Writer) (_ []byte, err error) {
	shown, name := payload, "payload-*.txt"
	var pretty bytes.Buffer
	isJSON := json.Indent(&pretty, payload, "", "  ") == nil
	if isJSON {
		pretty.WriteByte('\n')
		shown, name = pretty.Bytes(), "payload-*.json"
	}
	file, err := os.CreateTemp("", name) // for its owner alone
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	_, err = file.Write(shown)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	words := append(strings.Fields(editor), file.Name())
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %q: %w", editor, err)
	}
	saved, err := os.ReadFile(file.Name())
	if err != nil || bytes.Equal(saved, shown) {
		return payload, err
	}
	var compact bytes.Buffer
	if isJSON && json.Compact(&compact, saved) == nil {
		return compact.Bytes(), nil
	}
	return saved, nil
}
