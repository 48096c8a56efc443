package relay

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// States of a CDC stream in the relay.
const (
	streamOpened   = "opened"   // nothing was read since
	streamRead     = "read"     // something of it is not settled
	streamSettled  = "settled"  // all that was read is, and the checkpoint is behind
	streamSaved    = "saved"    // the checkpoint is where the stream is
	streamHeld     = "held"     // its next row cannot be read
	streamFinished = "finished" // a later generation is read
)

const (
	unreadable = "a row of a table that is not as it was mapped"
	restarted  = "the reader is started again"
)

var streamTransitions = []transition{
	{nowhere, streamOpened, "the reader begins it, at its checkpoint"},
	{streamOpened, streamRead, "a change"},
	{streamOpened, streamSettled, "an empty window"},
	{streamRead, streamSettled, "its events are published or dead letters"},
	{streamSettled, streamRead, "a change"},
	{streamSettled, streamSaved, "the checkpoint is saved"},
	{streamSaved, streamRead, "a change"},
	{streamSaved, streamSettled, "an empty window"},
	{streamSaved, streamFinished, "a new generation, and all of this one is saved"},
	{streamOpened, streamHeld, unreadable},
	{streamRead, streamHeld, unreadable},
	{streamSettled, streamHeld, unreadable},
	{streamSaved, streamHeld, unreadable},
	{streamOpened, nowhere, restarted},
	{streamRead, nowhere, restarted},
	{streamSaved, nowhere, restarted},
	{streamHeld, nowhere, restarted},
}

// state is where a stream is that was opened.
func (s *streams) state(p *streamProgress) string {
	s.mu.Lock()
	_, open := s.open[p]
	held := s.held[p]
	known := s.byID[string(p.stream)] == p
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !open && !known:
		return streamFinished
	case !open:
		return nowhere
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

// Streams go through every transition that there is, and no other.
func TestStream_Transitions(t *testing.T) {
	t.Parallel()
	w := newWalk(t, streamTransitions)
	s, _, m := newTestStreams(t)
	older, newer := testStart, testStart.Add(time.Hour)
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(m.StartGeneration(t.Context(), older))
	step := func(p *streamProgress, want string) {
		t.Helper()
		got := s.state(p)
		w.see("stream "+p.stream.String(), got)
		if got != want {
			t.Fatalf("stream %s is %s, want %s", p.stream, got, want)
		}
	}
	save := func() {
		t.Helper()
		_, err := s.saveDue(t.Context(), 0)
		try(err)
	}

	a := open(t, m, older, "a")
	step(a, streamOpened)
	id := a.begin(at(1), 2)
	step(a, streamRead)
	a.settle(id)
	step(a, streamRead) // one event of two
	save()
	step(a, streamRead)
	a.settle(id)
	step(a, streamSettled)
	id = a.begin(at(2), 1)
	step(a, streamRead)
	a.settle(id)
	step(a, streamSettled)
	save()
	step(a, streamSaved)
	a.idle(at(3))
	step(a, streamSettled)
	save()
	step(a, streamSaved)
	a.begin(at(4), 1)
	step(a, streamRead)

	// From wherever it is a stream may be held, and the reader started again.
	all := []*streamProgress{a}
	for _, hold := range []bool{true, false} {
		for _, from := range []string{streamSaved, streamOpened, streamRead, streamSettled} {
			if from == streamSettled && !hold {
				continue // a reader that ends saves it
			}
			p := open(t, m, older, fmt.Sprint(from, hold))
			all = append(all, p)
			step(p, streamOpened)
			switch from {
			case streamSaved:
				p.idle(at(1))
				step(p, streamSettled)
				save()
			case streamRead:
				p.begin(at(1), 1)
			case streamSettled:
				p.idle(at(1))
			}
			step(p, from)
			if hold {
				s.hold(p, errors.New("no column"))
				step(p, streamHeld)
			}
		}
	}
	try(s.reset(t.Context()))
	for _, p := range all {
		step(p, nowhere)
	}

	a = open(t, m, older, "a")
	step(a, streamOpened)
	if a.start != at(3) {
		t.Errorf("the stream goes on at %s, want the checkpoint, %s", a.start.Time(), at(3).Time())
	}
	a.idle(at(5))
	step(a, streamSettled)
	save()
	step(a, streamSaved)
	try(m.StartGeneration(t.Context(), newer))
	step(a, streamFinished)
	w.whole()
}
