package sim

import (
	"context"
	"encoding/binary"
	"maps"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// save is a stored checkpoint with the name of its relay.
type save struct {
	relay    string
	at       time.Time
	position gocql.UUID
	// late is true if no running relay saved it.
	late bool
	// generation is the generation of the stream.
	generation time.Time
}

// saves is the history of all checkpoints, recorded by an engine.Hook before they are
// stored.
type saves struct {
	mu       sync.Mutex
	byStream map[string][]save
	each     func() // called for each
}

// Before implements engine.Hook. It rejects nothing.
func (s *saves) Before(_ context.Context, op engine.Op) engine.Verdict {
	if op.Kind != engine.OpWrite || op.Table != checkpoints {
		return engine.Verdict{}
	}
	s.mu.Lock()
	for _, m := range op.Mutations {
		relay := parseRelay(m.Key)
		// The clustering key is generation and stream.
		for _, row := range m.Rows {
			position := row.Column(m.Table.ByName["position"].ID)
			if position == nil {
				continue
			}
			if s.byStream == nil {
				s.byStream = make(map[string][]save)
			}
			late := false
			if by := row.Column(m.Table.ByName["updated_by"].ID); by != nil && string(by.Cell.Value) == ghost {
				late = true
			}
			stream := string(row.Clustering[1])
			s.byStream[stream] = append(s.byStream[stream], save{
				relay: relay, at: time.Now(), late: late, position: gocql.UUID(position.Cell.Value),
				generation: time.UnixMilli(int64(binary.BigEndian.Uint64(row.Clustering[0]))),
			})
		}
	}
	each := s.each
	s.mu.Unlock()
	if each != nil {
		each()
	}
	return engine.Verdict{}
}

// onEach calls f for each checkpoint before it is stored; nil disables it.
func (s *saves) onEach(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = f
}

func (s *saves) all() map[string][]save {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byStream)
}
