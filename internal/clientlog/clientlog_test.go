package clientlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
)

var (
	_ gocql.StdLogger             = (*Lines)(nil)
	_ scyllacdc.Logger            = (*Lines)(nil)
	_ gocql.WarningHandlerBuilder = (*Lines)(nil).Warnings
)

// records returns the lines of a JSON log.
func records(t *testing.T, log string) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// A broker that cannot be reached appears in the log as a record with its address and the
// error, and nothing else of the client does at level info.
func TestKafka_BrokerError(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil { // connections are refused
		t.Fatal(err)
	}
	var log logtest.Buffer
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.WithLogger(Kafka(slog.New(slog.NewJSONHandler(&log, nil)))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if client.Ping(ctx) == nil {
		t.Fatal("a closed port answered")
	}
	client.Close()
	found := false
	for _, r := range records(t, log.String()) {
		if r["level"] == "INFO" || r[ComponentAttr] != kafkaClient {
			t.Errorf("record %v: want warnings and errors of component %s only", r, kafkaClient)
		}
		err, _ := r["err"].(string)
		found = found || r["level"] == "WARN" && r["addr"] == addr && strings.Contains(err, "refused")
	}
	if !found {
		t.Errorf("the log is\n%s\nwant a warning with addr=%s and the error", log.String(), addr)
	}
}

// Levels below warning are lowered, others are kept, and the client formats no line that
// is not logged.
func TestKafka_Levels(t *testing.T) {
	t.Parallel()
	for setting, want := range map[slog.Level]struct {
		level kgo.LogLevel // that the client formats
		lines string
	}{
		slog.LevelDebug: {kgo.LogLevelInfo, "ERROR WARN DEBUG"},
		slog.LevelInfo:  {kgo.LogLevelWarn, "ERROR WARN"},
		slog.LevelError: {kgo.LogLevelError, "ERROR"},
	} {
		var log bytes.Buffer
		l := Kafka(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: setting})))
		for level := kgo.LogLevelError; level <= l.Level(); level++ {
			l.Log(level, "m", "k", "v")
		}
		var got []string
		for _, r := range records(t, log.String()) {
			got = append(got, r["level"].(string))
		}
		if s := strings.Join(got, " "); l.Level() != want.level || s != want.lines {
			t.Errorf("with level %v the client formats %v, and error, warn and info are logged as %s; want %v and %s", setting, l.Level(), s, want.level, want.lines)
		}
	}
}

// A warning that differs from one of the last minute in numbers alone is not logged.
func TestKafka_Repeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := Kafka(slog.New(slog.NewJSONHandler(&log, nil)))
		refused := errors.New("connection refused")
		for i := range 3 {
			l.Log(kgo.LogLevelWarn, "unable to connect", "addr", "a:9092", "failures", i, "backoff", time.Duration(i), "err", refused)
			l.Log(kgo.LogLevelWarn, "unable to connect", "addr", "b:9092", "failures", i, "err", refused)
			l.Log(kgo.LogLevelError, "unable to connect", "addr", "a:9092", "err", errors.New("timeout"))
		}
		if n := len(records(t, log.String())); n != 3 {
			t.Errorf("%d lines of 3 different ones:\n%s", n, log.String())
		}
		time.Sleep(repeatAfter + time.Second)
		l.Log(kgo.LogLevelWarn, "unable to connect", "addr", "a:9092", "failures", 9, "err", refused)
		if n := len(records(t, log.String())); n != 4 {
			t.Errorf("%d lines, want one again after a minute", n)
		}
	})
}

// A line with an error is a warning with the error as attribute, once a minute; the error
// is reported each time. Other lines, and the end of a session, are of level debug.
func TestLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		failures := 0
		l := CDC(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), func() { failures++ })
		broken := errors.New("broken pipe")
		for _, tt := range []struct {
			name     string
			do       func()
			want     []string // level and message of each record
			failures int
		}{
			{"plain", func() { l.Printf("gocql: stream %d\n", 1) }, []string{"DEBUG stream 1"}, 0},
			{"error", func() { l.Printf("gocql: dial %s: %v\n", "a", broken) }, []string{"WARN dial a: broken pipe"}, 1},
			{"identical", func() { l.Printf("gocql: dial %s: %v\n", "a", broken) }, nil, 2},
			{"of another node", func() { l.Printf("gocql: dial %s: %v\n", "b", broken) }, []string{"WARN dial b: broken pipe"}, 3},
			{"a minute later", func() {
				time.Sleep(repeatAfter + time.Second)
				l.Printf("gocql: dial %s: %v\n", "a", broken)
			}, []string{"WARN dial a: broken pipe"}, 4},
			{"Println", func() { l.Println(broken) }, []string{"WARN broken pipe"}, 5},
			{"Print", func() { l.Print("gocql: x") }, []string{"DEBUG x"}, 5},
			{"stopped", func() { l.Printf("query: %v", context.Canceled) }, []string{"DEBUG query: context canceled"}, 5},
			{"closed", func() { l.Println(gocql.ErrSessionClosed) }, []string{"DEBUG session has been closed"}, 5},
		} {
			log.Reset()
			tt.do()
			var got []string
			for _, r := range records(t, log.String()) {
				level := r["level"].(string)
				got = append(got, level+" "+r["msg"].(string))
				if err, ok := r["err"]; r[ComponentAttr] != cdcReader || ok != (level == "WARN") || ok && err != broken.Error() {
					t.Errorf("%s: record %v: want component %s, and the error of a warning", tt.name, r, cdcReader)
				}
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") || failures != tt.failures {
				t.Errorf("%s: the log is %q after %d failures, want %q after %d", tt.name, got, failures, tt.want, tt.failures)
			}
		}
		for i := range 2 * maxTexts {
			l.Printf("dial %d: %v", i, broken)
		}
		if len(l.repeats.last) > maxTexts {
			t.Errorf("remembers %d warnings, want at most %d", len(l.repeats.last), maxTexts)
		}
	})
}

// A warning of the database names its node.
func TestLines_Warnings(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	built := gocql.HostInfoBuilder{ConnectAddress: net.IPv4(127, 0, 0, 9)}.Build()
	host := &built
	w := Scylla(slog.New(slog.NewJSONHandler(&log, nil))).Warnings(nil)
	for range 2 {
		w.HandleWarnings(nil, host, []string{"large batch"})
	}
	w.HandleWarnings(nil, nil, []string{"tombstones"})
	got := records(t, log.String())
	if len(got) != 2 || got[0]["node"] != "127.0.0.9" || got[0]["warning"] != "large batch" || got[1]["warning"] != "tombstones" {
		t.Errorf("the log is\n%s\nwant one record for each warning", log.String())
	}
}
