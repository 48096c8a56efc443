package publish

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// laneStates are the names of the states in docs/design/README.md.
var laneStates = [...]string{
	laneReady: "ready", laneReturning: "returning", laneDelayed: "delayed", laneSuspect: "suspect", laneHeld: "held", laneWriting: "writing", laneEnded: "ended",
}

// laneTransition is a change of the state of a lane.
type laneTransition struct {
	from laneState
	on   laneEvent
	to   laneState
	by   string
}

var laneTransitions = []laneTransition{
	{laneReady, recordFailed, laneReturning, "a record comes back with an error"},
	{laneReady, frontDelayed, laneDelayed, "the front is due later"},
	{laneReady, frontHeld, laneHeld, "the front can never be published, without dead letters"},
	{laneReady, writeBegun, laneWriting, "the front becomes a dead letter"},
	{laneReady, laneOver, laneEnded, "its replay has ended, or is called off"},
	{laneReturning, recordFailed, laneReturning, "another record comes back"},
	{laneReturning, recordsBack, laneReady, "all are back, and the breaker is open or the last attempt failed"},
	{laneReturning, frontRefused, laneSuspect, "all are back, and the front was refused"},
	{laneReturning, frontDelayed, laneDelayed, "all are back after a transient error"},
	{laneReturning, frontHeld, laneHeld, "all are back, and its topic was refused, without dead letters"},
	{laneReturning, laneOver, laneEnded, "the relay stops, or its replay failed"},
	{laneDelayed, recordFailed, laneReturning, "a record before the front comes back with an error"},
	{laneDelayed, recordRejected, laneReady, "a record before the front comes back unsent"},
	{laneDelayed, delayOver, laneReady, "its time"},
	{laneSuspect, recordFailed, laneSuspect, "an error"},
	{laneSuspect, recordsBack, laneSuspect, "the breaker is open, or it is refused alone"},
	{laneSuspect, frontDelayed, laneHeld, "a transient error"},
	{laneSuspect, frontHeld, laneHeld, "refused alone, without dead letters"},
	{laneSuspect, frontGone, laneReady, "acknowledged, or left in the log"},
	{laneSuspect, writeBegun, laneWriting, "it becomes a dead letter"},
	{laneSuspect, laneOver, laneEnded, "the relay stops, or its replay failed"},
	{laneHeld, delayOver, laneSuspect, "its time"},
	{laneWriting, recordFailed, laneWriting, "a record before the front comes back with an error"},
	{laneWriting, writeBroken, laneReturning, "such a record came back"},
	{laneWriting, writeEnded, laneReady, "the front becomes no dead letter"},
}

// A lane takes the transitions of the table, and no other.
func TestLane_Transitions(t *testing.T) {
	t.Parallel()
	for from := range laneEnded + 1 {
		for on := range laneOver + 1 {
			want, possible := from, false
			for _, x := range laneTransitions {
				if x.from == from && x.on == on {
					want, possible = x.to, true
				}
			}
			got := from
			if ok := got.on(on); ok != possible || got != want {
				t.Errorf("%s on event %d: %s, %v; want %s, %v", laneStates[from], on, laneStates[got], ok, laneStates[want], possible)
			}
		}
	}
}

func TestDesign_ShowsTheStatesOfLanes(t *testing.T) {
	t.Parallel()
	machine := make([]relaytest.Transition, len(laneTransitions))
	for i, x := range laneTransitions {
		machine[i] = relaytest.Transition{From: laneStates[x.from], To: laneStates[x.to], By: x.by}
	}
	relaytest.CheckDiagram(t, "../../..", "lane", machine)
}
