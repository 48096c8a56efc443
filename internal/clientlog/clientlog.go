// Package clientlog passes the logs of the client libraries to slog, with the attribute
// component. Their warnings and errors keep their level; everything below is one level
// lower, because the libraries report each reconnection and each rebalance at info.
//
// It does not decide what an error means: the callers of the libraries receive their errors
// too, and handle them.
package clientlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// ComponentAttr is the attribute with the library that a line is of. The values are
// constants.
const ComponentAttr = "component"

// The values of ComponentAttr.
const (
	kafkaClient  = "kafka-client"
	scyllaClient = "scylla-client"
	cdcReader    = "cdc-reader"
)

// Kafka returns the logger of Kafka clients. Warnings and errors that differ in numbers alone
// are logged once a minute: a client reports each attempt to connect, several times a second.
func Kafka(log *slog.Logger) kgo.Logger {
	return kslog.New(slog.New(quieter{log.Handler(), new(repeats)}).With(ComponentAttr, kafkaClient))
}

// quieter lowers every level below warning by one step, so that info is logged as debug,
// and debug not at all by the levels of the settings. It omits repeated warnings.
type quieter struct {
	slog.Handler
	repeats *repeats
}

const step = slog.LevelInfo - slog.LevelDebug

func lowerLevel(l slog.Level) slog.Level {
	if l < slog.LevelWarn {
		l -= step
	}
	return l
}

// Enabled implements slog.Handler.
func (h quieter) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, lowerLevel(l))
}

// Handle implements slog.Handler.
func (h quieter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.repeats.has(formatText(r)) {
		return nil
	}
	r.Level = lowerLevel(r.Level)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h quieter) WithAttrs(a []slog.Attr) slog.Handler {
	return quieter{h.Handler.WithAttrs(a), h.repeats}
}

// WithGroup implements slog.Handler.
func (h quieter) WithGroup(name string) slog.Handler {
	return quieter{h.Handler.WithGroup(name), h.repeats}
}

// formatText returns level, message and attributes of a record but the numbers, such as how many
// attempts failed and how long the next one waits.
func formatText(r slog.Record) string {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime:
		default:
			text += fmt.Sprintf(" %s=%s", a.Key, a.Value)
		}
		return true
	})
	return text
}

// repeats remembers the latest warnings. It is safe for concurrent use.
type repeats struct {
	mu   sync.Mutex
	last map[string]time.Time // by text
}

// Lines is the logger of a library that formats its lines and has no levels. A line with
// an error is a warning, every other line is of level debug. An identical warning is
// logged once a minute: the driver repeats some with every attempt to reconnect. Lines is
// safe for concurrent use.
type Lines struct {
	log     *slog.Logger
	failed  func()
	repeats repeats
}

const (
	// repeatAfter is the minimum interval between identical warnings.
	repeatAfter = time.Minute
	// maxTexts bounds the remembered warnings, whose texts contain ports of connections.
	maxTexts = 64
)

// Scylla returns the logger of sessions. It is a gocql.StdLogger.
func Scylla(log *slog.Logger) *Lines { return newLines(log, scyllaClient, func() {}) }

// CDC returns the logger of CDC readers. It is a scyllacdc.Logger. failed is called for
// each line with an error, also while identical lines are not logged.
func CDC(log *slog.Logger, failed func()) *Lines { return newLines(log, cdcReader, failed) }

func newLines(log *slog.Logger, component string, failed func()) *Lines {
	return &Lines{log: log.With(ComponentAttr, component), failed: failed}
}

// Print logs its operands, formatted as by fmt.Sprint.
func (l *Lines) Print(args ...any) { l.line(fmt.Sprint(args...), args) }

// Println logs its operands, formatted as by fmt.Sprintln.
func (l *Lines) Println(args ...any) { l.line(fmt.Sprintln(args...), args) }

// Printf logs its operands, formatted as by fmt.Sprintf.
func (l *Lines) Printf(format string, args ...any) { l.line(fmt.Sprintf(format, args...), args) }

func (l *Lines) line(text string, args []any) {
	text = strings.TrimSpace(strings.TrimPrefix(text, "gocql: "))
	err := failure(args)
	if err == nil {
		l.log.Debug(text)
		return
	}
	l.failed()
	if l.repeats.has(text) {
		return
	}
	l.log.Warn(text, "err", err)
}

// has reports whether the text was logged less than repeatAfter ago; otherwise it is now.
func (r *repeats) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if at, ok := r.last[text]; ok && now.Sub(at) <= repeatAfter {
		return true
	}
	if len(r.last) >= maxTexts || r.last == nil {
		r.last = make(map[string]time.Time)
	}
	r.last[text] = now
	return false
}

// failure returns the first error of the operands of a line, nil without one. The end of
// a session or of its context is not a failure.
func failure(args []any) error {
	for _, a := range args {
		err, ok := a.(error)
		if ok && !errors.Is(err, context.Canceled) && !errors.Is(err, gocql.ErrSessionClosed) {
			return err
		}
	}
	return nil
}

// Warnings logs the warnings that the database adds to its responses, such as warnings
// about large batches. It is a gocql.WarningHandlerBuilder.
func (l *Lines) Warnings(*gocql.Session) gocql.WarningHandler { return warnings{l} }

type warnings struct{ lines *Lines }

// HandleWarnings implements gocql.WarningHandler.
func (w warnings) HandleWarnings(_ gocql.ExecutableQuery, host *gocql.HostInfo, texts []string) {
	node := ""
	if host != nil {
		node = host.ConnectAddress().String()
	}
	for _, text := range texts {
		if !w.lines.repeats.has(text) {
			w.lines.log.Warn("the database returned a warning", "node", node, "warning", text)
		}
	}
}
