package relaytest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// Logger returns a logger that writes to the output of the test.
func Logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// Checkpoints is a checkpoint.Store in memory with injected failures.
type Checkpoints struct {
	Mu                sync.Mutex
	rows              map[string]gocql.UUID
	topics            map[string]bool
	Generation, First time.Time
	Err               error
	frozen            bool // saves of positions have no effect
}

// NewCheckpoints returns an empty store.
func NewCheckpoints() *Checkpoints {
	return &Checkpoints{rows: make(map[string]gocql.UUID), topics: make(map[string]bool)}
}

func (m *Checkpoints) key(gen time.Time, stream []byte) string {
	return gen.UTC().Format(time.RFC3339Nano) + "/" + string(stream)
}

func (m *Checkpoints) Position(_ context.Context, gen time.Time, stream []byte) (gocql.UUID, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return m.rows[m.key(gen, stream)], m.Err
}

func (m *Checkpoints) SavePosition(_ context.Context, gen time.Time, stream []byte, pos gocql.UUID) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.Err == nil && !m.frozen {
		m.rows[m.key(gen, stream)] = pos
	}
	return m.Err
}

func (m *Checkpoints) Start(context.Context) (generation, first time.Time, err error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return m.Generation, m.First, m.Err
}

func (m *Checkpoints) SaveGeneration(_ context.Context, gen time.Time) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.Err == nil {
		m.Generation = gen
	}
	return m.Err
}

func (m *Checkpoints) SaveFirst(_ context.Context, first time.Time) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.Err == nil {
		m.First = first
	}
	return m.Err
}

func (m *Checkpoints) Positions(_ context.Context, gen time.Time) (map[string]gocql.UUID, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	out := make(map[string]gocql.UUID)
	for k, pos := range m.rows {
		if stream, ok := strings.CutPrefix(k, m.key(gen, nil)); ok {
			out[stream] = pos
		}
	}
	return out, m.Err
}

func (m *Checkpoints) Topics(context.Context) ([]string, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	return slices.Collect(maps.Keys(m.topics)), m.Err
}

func (m *Checkpoints) SaveTopic(_ context.Context, topic string) error {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.Err == nil {
		m.topics[topic] = true
	}
	return m.Err
}

func (m *Checkpoints) Freeze(on bool) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.frozen = on
}

func (m *Checkpoints) Fail(err error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.Err = err
}

// Start is a fixed time.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// At returns a position that many seconds after Start.
func At(seconds int) gocql.UUID {
	return gocql.MinTimeUUID(Start.Add(time.Duration(seconds) * time.Second))
}
