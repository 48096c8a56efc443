package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A misspelt variable is named; the ones of settings, of others and of Kubernetes are not,
// nor is any value, which may be a secret.
func TestWarnOfStrangers(t *testing.T) {
	t.Parallel()
	environ := []string{
		"OUTBOX_KAFKA_SEED=broker:9092", "OUTBOX_KAKFA_PASSWORD=hush", "OUTBOX_RELAY=",
		"HOME=/root", "OUTBOXED=1",
		"OUTBOX_RELAY_SERVICE_HOST=10.0.0.1", "OUTBOX_RELAY_SERVICE_PORT=9091", "OUTBOX_RELAY_SERVICE_PORT_ADMIN=9091", "OUTBOX_RELAY_PORT=tcp://10.0.0.1:9091",
		"OUTBOX_RELAY_PORT_9091_TCP=tcp://10.0.0.1:9091", "OUTBOX_RELAY_PORT_9091_TCP_PROTO=tcp", "OUTBOX_RELAY_PORT_9091_TCP_ADDR=10.0.0.1",
	}
	for _, s := range Settings {
		environ = append(environ, s.Env()+"=x")
	}
	if got := strings.Join(Settings.Strangers(environ), " "); got != "OUTBOX_KAFKA_SEED OUTBOX_KAKFA_PASSWORD OUTBOX_RELAY" {
		t.Errorf("Strangers() = %s", got)
	}
	var log bytes.Buffer
	warnOfStrangers(slog.New(slog.NewTextHandler(&log, nil)), environ)
	if said := log.String(); strings.Count(said, "level=WARN") != 3 || !strings.Contains(said, "name=OUTBOX_KAKFA_PASSWORD") || strings.Contains(said, "hush") {
		t.Errorf("it says\n%s", said)
	}
}
