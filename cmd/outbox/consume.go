package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// maxStderr bounds the error output of a command that becomes the reason of a failed
// delivery, in bytes.
const maxStderr = 2000

// killDelay is the time between SIGTERM and SIGKILL of a command.
const killDelay = 5 * time.Second

func newConsumeCommand() *cobra.Command {
	var (
		f                   apiFlags
		command, consumer   string
		most, concurrency   int
		visibility, stopFor time.Duration
		timeout             time.Duration
	)
	cmd := &cobra.Command{
		Use:   "consume NAME",
		Short: "Receive and acknowledge the messages of a subscription",
		Long: `Receive and acknowledge the messages of a subscription, until SIGTERM.

Without --exec each message is printed as one line of JSON and acknowledged. With --exec
CMD the shell runs CMD for each message, which is JSON on its standard input: exit status
0 acknowledges the message; any other one, or a signal, is a failed delivery with the
command's error output as the reason. After max_receive failed deliveries the message
is a dead letter. The lease is extended while CMD runs, until --timeout. Delivery is at
least once. A command that cannot be started, exit status 126 or 127, uses up no delivery:
the messages wait, and it is tried again after 1 s, then after up to 30 s.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSubscriptions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client(cmd)
			if err != nil {
				return err
			}
			if most < 0 || concurrency < 1 || visibility < time.Second || timeout < time.Second {
				return cli.Usage(fmt.Errorf("--limit %d, --concurrency %d, --visibility-timeout %s, --timeout %s: use at least 0, 1, 1s and 1s", most, concurrency, visibility, timeout))
			}
			k := consumption{out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), command: command, left: most}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			if k.stop = func() {}; most > 0 {
				k.stop, concurrency = stop, min(concurrency, most)
			}
			err = c.Consume(ctx, args[0], k.handle, client.ConsumeOptions{
				Concurrency: concurrency, VisibilityTimeout: visibility, Timeout: timeout, StopTimeout: stopFor, Consumer: consumer, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			})
			return apiError(err)
		},
	}
	app.AddFlags(cmd, app.SectionAPI)
	fl := cmd.Flags()
	fl.StringVar(&command, "exec", "", "command for each message, run by sh -c; empty prints the messages")
	fl.StringVar(&consumer, "consumer", "", "name of this consumer in leases, such as its host; behind that of its token")
	fl.IntVar(&most, "limit", 0, "exit after this number of messages; 0 is never")
	fl.IntVar(&concurrency, "concurrency", 1, "messages in progress")
	fl.DurationVar(&visibility, "visibility-timeout", 30*time.Second, "how long a message stays invisible after this process has failed")
	fl.DurationVar(&timeout, "timeout", 12*time.Hour, "how long a command may run; then it is stopped, and the delivery has failed")
	fl.DurationVar(&stopFor, "stop-timeout", 30*time.Second, "how long commands may run after SIGTERM before they are killed")
	return cmd
}

// consumption handles the messages of a consumer.
type consumption struct {
	out, errOut io.Writer
	command     string
	stop        func()

	mu   sync.Mutex
	left int // messages before stop; 0 at the start for any number
	// done messages are ended or in progress.
	done, ended int
}

// handle prints a message, or runs the command for it.
func (k *consumption) handle(ctx context.Context, d *client.Delivery) error {
	k.mu.Lock()
	k.done++
	surplus := k.left > 0 && k.done > k.left
	k.mu.Unlock()
	if surplus {
		return client.ErrRelease
	}
	started, err := k.process(ctx, d)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !started {
		k.done--
		return client.Unavailable(fmt.Errorf("start the command: %w", err))
	}
	if k.ended++; k.ended == k.left {
		k.stop()
	}
	return err
}

// process returns false with an error if the command cannot be started.
func (k *consumption) process(ctx context.Context, d *client.Delivery) (started bool, err error) {
	line, err := encodeLine(d)
	if err != nil {
		return true, err
	}
	if k.command == "" {
		k.mu.Lock()
		defer k.mu.Unlock()
		_, err := k.out.Write(line)
		return true, err
	}
	return k.exec(ctx, line)
}

// encodeLine returns a message as a line of JSON. Beside data with white space, which a line cannot
// have, data_base64 is the payload.
func encodeLine(d *client.Delivery) ([]byte, error) {
	compact, line := bytes.Buffer{}, bytes.Buffer{}
	if err := json.Compact(&compact, d.Data); d.Data != nil && (err != nil || !bytes.Equal(compact.Bytes(), d.Data)) {
		d.DataBase64 = d.Payload()
	}
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // bytes of data
	err := enc.Encode(d)
	return line.Bytes(), err
}

// exec runs the command with the message as its input.
func (k *consumption) exec(ctx context.Context, line []byte) (started bool, err error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", k.command)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(line), k.out
	cmd.Stderr = io.MultiWriter(k.errOut, limited{&stderr})
	err = cmd.Run()
	var exit *exec.ExitError
	started = err == nil || ctx.Err() != nil || errors.As(err, &exit) && exit.ExitCode() != 126 && exit.ExitCode() != 127
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, cli.Clean(text, 0))
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w: %w", context.Cause(ctx), err)
	}
	return started, err
}

// limited keeps the beginning of a text.
type limited struct{ *bytes.Buffer }

func (l limited) Write(p []byte) (int, error) {
	if left := maxStderr - l.Len(); left > 0 {
		l.Buffer.Write(p[:min(left, len(p))])
	}
	return len(p), nil
}
