package checkpoint

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// States of a CDC stream in the relay.
const (
	streamOpened   = "opened"   // no change read yet
	streamRead     = "read"     // a change is pending
	streamSettled  = "settled"  // no change pending, checkpoint older than the position
	streamSaved    = "saved"    // checkpoint equal to the position
	streamHeld     = "held"     // next row unreadable
	streamFinished = "finished" // a later generation is current
)

const (
	unreadable = "a row that does not match the mapping"
	restarted  = "the reader restarts"
)

var streamTransitions = []relaytest.Transition{
	{From: relaytest.Nowhere, To: streamOpened, By: "the reader opens it at its checkpoint"},
	{From: streamOpened, To: streamRead, By: "a change"},
	{From: streamOpened, To: streamSettled, By: "an empty window"},
	{From: streamRead, To: streamSettled, By: "its events are published or dead-lettered"},
	{From: streamSettled, To: streamRead, By: "a change"},
	{From: streamSettled, To: streamSaved, By: "the checkpoint is saved"},
	{From: streamSaved, To: streamRead, By: "a change"},
	{From: streamSaved, To: streamSettled, By: "an empty window"},
	{From: streamSaved, To: streamFinished, By: "a new generation, after all checkpoints of this one are saved"},
	{From: streamOpened, To: streamHeld, By: unreadable},
	{From: streamRead, To: streamHeld, By: unreadable},
	{From: streamSettled, To: streamHeld, By: unreadable},
	{From: streamSaved, To: streamHeld, By: unreadable},
	{From: streamOpened, To: relaytest.Nowhere, By: restarted},
	{From: streamRead, To: relaytest.Nowhere, By: restarted},
	{From: streamSaved, To: relaytest.Nowhere, By: restarted},
	{From: streamHeld, To: relaytest.Nowhere, By: restarted},
}

// state returns the state of a stream that was opened.
func (s *Streams) state(p *Stream) string {
	s.mu.Lock()
	_, open := s.open[p]
	held := s.held[p]
	known := s.byID[string(p.ID)] == p
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !open && !known:
		return streamFinished
	case !open:
		return relaytest.Nowhere
	case held != nil:
		return streamHeld
	case len(p.pending) > 0:
		return streamRead
	case p.position != p.saved:
		return streamSettled
	case p.position == p.start:
		return streamOpened
	default:
		return streamSaved
	}
}

// Streams go through every listed transition and no other.
func TestStream_Transitions(t *testing.T) {
	t.Parallel()
	w := relaytest.NewWalk(t, streamTransitions)
	s, _, m := newTestStreams(t)
	older, newer := relaytest.Start, relaytest.Start.Add(time.Hour)
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(m.StartGeneration(t.Context(), older))
	step := func(p *Stream, want string) {
		t.Helper()
		got := s.state(p)
		w.See("stream "+p.ID.String(), got)
		if got != want {
			t.Fatalf("stream %s is %s, want %s", p.ID, got, want)
		}
	}
	save := func() {
		t.Helper()
		_, err := s.saveDue(t.Context(), 0)
		try(err)
	}

	a := open(t, m, older, "a")
	step(a, streamOpened)
	id := a.Begin(relaytest.At(1), 2)
	step(a, streamRead)
	a.Settle(id)
	step(a, streamRead) // one event of two
	save()
	step(a, streamRead)
	a.Settle(id)
	step(a, streamSettled)
	id = a.Begin(relaytest.At(2), 1)
	step(a, streamRead)
	a.Settle(id)
	step(a, streamSettled)
	save()
	step(a, streamSaved)
	a.Idle(relaytest.At(3))
	step(a, streamSettled)
	save()
	step(a, streamSaved)
	a.Begin(relaytest.At(4), 1)
	step(a, streamRead)

	// From each state a stream can be held, and the reader can restart.
	all := []*Stream{a}
	for _, hold := range []bool{true, false} {
		for _, from := range []string{streamSaved, streamOpened, streamRead, streamSettled} {
			if from == streamSettled && !hold {
				continue // Reset saves its position
			}
			p := open(t, m, older, fmt.Sprint(from, hold))
			all = append(all, p)
			step(p, streamOpened)
			switch from {
			case streamSaved:
				p.Idle(relaytest.At(1))
				step(p, streamSettled)
				save()
			case streamRead:
				p.Begin(relaytest.At(1), 1)
			case streamSettled:
				p.Idle(relaytest.At(1))
			}
			step(p, from)
			if hold {
				s.Hold(p, errors.New("no column"))
				step(p, streamHeld)
			}
		}
	}
	try(s.Reset(t.Context()))
	for _, p := range all {
		step(p, relaytest.Nowhere)
	}

	a = open(t, m, older, "a")
	step(a, streamOpened)
	if a.start != relaytest.At(3) {
		t.Errorf("the stream resumes at %s, want the checkpoint, %s", a.start.Time(), relaytest.At(3).Time())
	}
	a.Idle(relaytest.At(5))
	step(a, streamSettled)
	save()
	step(a, streamSaved)
	try(m.StartGeneration(t.Context(), newer))
	step(a, streamFinished)
	w.Whole()
}

func TestDesign_ShowsTheStatesOfStreams(t *testing.T) {
	t.Parallel()
	relaytest.CheckDiagram(t, "../../..", "stream", streamTransitions)
}
