package dlq

// Status is where a letter stands.
type Status string

// The statuses of a letter. Open ones hold back the later events of their
// aggregate unless the letter was released.
const (
	// Pending: the relay replays it when NextAttempt has come.
	Pending Status = "pending"
	// Parked: it waits behind an earlier letter of its aggregate.
	Parked Status = "parked"
	// Processing: claimed, until the claim runs out.
	Processing Status = "processing"
	// Failed: its automatic replays are used up; an operator decides.
	Failed Status = "failed"
	// Manual: nobody tries it until an operator says so, because trying again
	// cannot help or because an operator put it aside.
	Manual Status = "manual"
	// Resolved: published, found in its topic, discarded, or settled by hand.
	Resolved Status = "resolved"
	// Archived: put away. It may be purged too: then its outline is left, so that
	// the event is known, and its copy may be in an archive.
	Archived Status = "archived"
)

// Statuses are all statuses, in the order of a letter's life.
var Statuses = []Status{Pending, Parked, Processing, Failed, Manual, Resolved, Archived}

// Open tells whether a letter with the status still wants something done.
func (s Status) Open() bool {
	switch s {
	case Pending, Parked, Processing, Failed, Manual:
		return true
	}
	return false
}

// Action is a change of a letter.
type Action string

// The actions. The relay's need a claim, but for ActionClaim.
const (
	ActionWrite   Action = "write"
	ActionClaim   Action = "claim"
	ActionExtend  Action = "extend"
	ActionUnclaim Action = "unclaim"
	ActionFail    Action = "fail"
	ActionSettle  Action = "settle" // Resolve, by the owner of the claim

	ActionReplay  Action = "replay"
	ActionDiscard Action = "discard"
	ActionRelease Action = "release"
	ActionPark    Action = "park"
	ActionResolve Action = "resolve" // ResolveByHand
	ActionEdit    Action = "edit"
	ActionArchive Action = "archive"
	ActionPurge   Action = "purge"
	ActionRestore Action = "restore"
)

// Actions are all changes of a letter that exists.
var Actions = append([]Action{ActionClaim, ActionExtend, ActionUnclaim, ActionFail, ActionSettle}, OperatorActions...)

// OperatorActions are those that are not the relay's.
var OperatorActions = []Action{ActionReplay, ActionDiscard, ActionRelease, ActionPark, ActionResolve, ActionEdit, ActionArchive, ActionPurge, ActionRestore}

// transitions says which action leads from where to where. The first status of
// a list is where the action usually leads.
var transitions = map[Action]map[Status][]Status{
	ActionClaim: {
		Pending:    {Processing},
		Parked:     {Processing},
		Processing: {Processing}, // by its owner, or after the claim ran out
	},
	ActionExtend:  {Processing: {Processing}},
	ActionUnclaim: {Processing: {Pending, Parked}},
	ActionFail:    {Processing: {Pending, Failed, Manual}},
	ActionSettle:  {Processing: {Resolved}},

	// Not Parked: the order of the aggregate is kept.
	ActionReplay: {
		Pending:    {Pending},
		Processing: {Pending},
		Failed:     {Pending},
		Manual:     {Pending},
	},
	ActionDiscard: operators(Resolved),
	ActionResolve: operators(Resolved),
	ActionPark:    operators(Manual),
	ActionRelease: {
		Pending:    {Manual},
		Processing: {Manual},
		Failed:     {Manual},
		Manual:     {Manual},
	},
	// What waits behind another goes on waiting: it is published so in its turn.
	ActionEdit: {
		Pending:    {Pending},
		Parked:     {Parked},
		Processing: {Pending},
		Failed:     {Pending},
		Manual:     {Pending},
	},
	ActionArchive: {Resolved: {Archived}, Failed: {Archived}},
	// Failed and Manual only if it is forced.
	ActionPurge:   {Resolved: {Archived}, Archived: {Archived}, Failed: {Archived}, Manual: {Archived}},
	ActionRestore: {Archived: {Resolved, Manual}},
}

// operators is where an operator may act: on open letters, on claimed ones only
// after the claim ran out.
func operators(to Status) map[Status][]Status {
	m := make(map[Status][]Status)
	for _, s := range []Status{Pending, Parked, Processing, Failed, Manual} {
		m[s] = []Status{to}
	}
	return m
}
