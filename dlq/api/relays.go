package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// silentAfter is for how long a relay may say nothing before it is called silent:
// it says something every two seconds.
const silentAfter = 10 * time.Second

// relayBody is what a relay last said of itself.
type relayBody struct {
	Relay    string    `json:"relay" doc:"The relay's name"`
	Table    string    `json:"table" doc:"Its outbox table, keyspace.table"`
	Instance string    `json:"instance" doc:"Which process"`
	At       time.Time `json:"at" doc:"When it last said something"`
	Silent   bool      `json:"silent" doc:"It has said nothing for 10 s, and did not say that it stops"`
	// Status is as the relay wrote it; package relay says what is in it.
	Status json.RawMessage `json:"status" doc:"What it said: state, version, host, breaker, lag, rates, memory, problems"`
}

type relaysOutput struct {
	Body struct {
		Relays []relayBody `json:"relays"`
	}
}

// relayScope is the partition of relay_instances.
const relayScope = "keyspace"

func (s *Server) registerRelays() {
	huma.Register(s.api, s.describe(access.Viewer, huma.Operation{
		OperationID: "list-relays", Method: http.MethodGet, Path: "/v1/relays", Summary: "List the relays that run, and what they say of themselves",
	}), s.listRelays)
}

func (s *Server) listRelays(ctx context.Context, _ *struct{}) (*relaysOutput, error) {
	relays, err := s.readRelays(ctx)
	if err != nil {
		return nil, s.toProblem(ctx, err, false)
	}
	out := new(relaysOutput)
	out.Body.Relays = relays
	return out, nil
}

func (s *Server) readRelays(ctx context.Context) ([]relayBody, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	out := []relayBody{}
	iter := s.cfg.Session.Query("SELECT relay, table_name, instance, at, status FROM "+s.cfg.Keyspace+".relay_instances WHERE scope = ?", relayScope).
		WithContext(ctx).Consistency(s.cfg.Consistency).Idempotent(true).Iter()
	for {
		var r relayBody
		var status string
		if !iter.Scan(&r.Relay, &r.Table, &r.Instance, &r.At, &status) {
			break
		}
		r.At = r.At.UTC()
		r.Status = json.RawMessage(status)
		if !json.Valid(r.Status) {
			r.Status = json.RawMessage("null")
		}
		var said struct {
			State string `json:"state"`
		}
		_ = json.Unmarshal(r.Status, &said) // a relay of another version may say something else
		r.Silent = said.State != "stopped" && s.cfg.Now().Sub(r.At) > silentAfter
		out = append(out, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read which relays run: %w", err)
	}
	return out, nil
}

// sameRelays tells whether nobody said anything in between.
func sameRelays(a, b []relayBody) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Relay != y.Relay || x.Table != y.Table || x.Instance != y.Instance || !x.At.Equal(y.At) || x.Silent != y.Silent || !bytes.Equal(x.Status, y.Status) {
			return false
		}
	}
	return true
}
