package publish

// laneState is the state of a lane. The producer may have records of the lane in each of them
// but laneHeld; in laneSuspect it has none but the suspect.
type laneState uint8

const (
	// laneReady: the front is sent when its turn comes.
	laneReady laneState = iota
	// laneReturning: a record came back with an error. Nothing is sent until all are back, so
	// that they are sent again in order.
	laneReturning
	// laneDelayed: the front waits for a time, that of its next attempt or Event.DeliverAt.
	laneDelayed
	// laneSuspect: the front was refused. It is sent alone, because a refusal fails everything
	// that is buffered for the partition.
	laneSuspect
	// laneHeld: the front waits for the time at which it is sent alone again.
	laneHeld
	// laneWriting: dead letters of the lane are being written.
	laneWriting
	// laneEnded: nothing is sent any more. Its replay has ended, or the relay ends.
	laneEnded
)

// laneEvent is what changes the state of a lane.
type laneEvent uint8

const (
	// recordFailed: a record came back with an error.
	recordFailed laneEvent = iota
	// recordRejected: a record came back unsent, and is the front now.
	recordRejected
	// recordsBack: all records are back, and the front continues immediately.
	recordsBack
	// frontRefused: all records are back, and the front was refused.
	frontRefused
	// frontDelayed: the front has to wait for a time.
	frontDelayed
	// frontHeld: the front was refused alone, and there is no table for dead letters.
	frontHeld
	// delayOver: the time for which the front waited has come.
	delayOver
	// frontGone: the suspect was acknowledged, or waits in the log.
	frontGone
	// writeBegun: the front is to become a dead letter.
	writeBegun
	// writeEnded: the front is not to become a dead letter.
	writeEnded
	// writeBroken: the front is not to become a dead letter now, because a record came back
	// with an error.
	writeBroken
	// laneOver: the replay ended, or the relay ends.
	laneOver
)

// laneAfter contains the state that follows a state by an event, for the events that are possible
// in it.
var laneAfter = [...]map[laneEvent]laneState{
	laneReady: {recordFailed: laneReturning, frontDelayed: laneDelayed, frontHeld: laneHeld, writeBegun: laneWriting, laneOver: laneEnded},
	laneReturning: {
		recordFailed: laneReturning, recordsBack: laneReady, frontRefused: laneSuspect, frontDelayed: laneDelayed, frontHeld: laneHeld, laneOver: laneEnded,
	},
	laneDelayed: {recordFailed: laneReturning, recordRejected: laneReady, delayOver: laneReady},
	laneSuspect: { // an error of the suspect is judged immediately
		recordFailed: laneSuspect, recordsBack: laneSuspect, frontDelayed: laneHeld, frontHeld: laneHeld, frontGone: laneReady, writeBegun: laneWriting, laneOver: laneEnded,
	},
	laneHeld:    {delayOver: laneSuspect},
	laneWriting: {recordFailed: laneWriting, writeEnded: laneReady, writeBroken: laneReturning}, // an error is judged after the write
	laneEnded:   {},
}

// on changes the state, and reports whether the event was possible. Otherwise the state is
// unchanged.
func (s *laneState) on(e laneEvent) bool {
	next, ok := laneAfter[*s][e]
	if ok {
		*s = next
	}
	return ok
}
