package dlq

// Status is the state of a dead letter.
type Status string

// The statuses of a dead letter. Open ones block the later events of their aggregate
// unless they are unblocked.
const (
	// Pending: the relay replays it at NextAttempt.
	Pending Status = "pending"
	// Blocked: an earlier dead letter of its aggregate blocks it.
	Blocked Status = "blocked"
	// Processing: claimed, until the claim expires.
	Processing Status = "processing"
	// Failed: its automatic replays are used up; an operator decides.
	Failed Status = "failed"
	// Suspended: it is not retried until an operator requests it, because a retry cannot
	// help or because an operator suspended it.
	Suspended Status = "suspended"
	// Resolved: published, found in its topic, discarded, or resolved by hand.
	Resolved Status = "resolved"
	// Archived: archived by retention or by a purge. A purge leaves an outline, so that
	// the relay knows the event; the copy may be in an archive.
	Archived Status = "archived"
)

// Statuses are all statuses, in the usual order.
var Statuses = []Status{Pending, Blocked, Processing, Failed, Suspended, Resolved, Archived}

// Open reports whether a dead letter with the status still needs an action.
func (s Status) Open() bool {
	switch s {
	case Pending, Blocked, Processing, Failed, Suspended:
		return true
	}
	return false
}

// Action is a change of a dead letter.
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
	ActionUnblock Action = "unblock"
	ActionSuspend Action = "suspend"
	ActionResolve Action = "resolve" // ResolveByHand
	ActionReopen  Action = "reopen"
	ActionEdit    Action = "edit"
	// ActionRedirect is an edit of the topic alone.
	ActionRedirect Action = "redirect"
	ActionSet      Action = "set" // of priority and tags
	ActionArchive  Action = "archive"
	ActionPurge    Action = "purge"
	ActionRestore  Action = "restore"
)

// Publishes reports whether the action of an operator requests that the relay publishes the dead
// letter.
func (a Action) Publishes() bool {
	return a == ActionReplay || a.Edits()
}

// Edits reports whether the action is an edit, of the content or of the topic.
func (a Action) Edits() bool { return a == ActionEdit || a == ActionRedirect }

// Actions are all changes of a stored dead letter.
var Actions = append([]Action{ActionClaim, ActionExtend, ActionUnclaim, ActionFail, ActionSettle}, OperatorActions...)

// OperatorActions are the actions of operators.
var OperatorActions = []Action{ActionReplay, ActionDiscard, ActionUnblock, ActionSuspend, ActionResolve, ActionReopen, ActionEdit, ActionRedirect, ActionSet, ActionArchive, ActionPurge, ActionRestore}

// transitions contains the next statuses by action and current status. The first status
// of a list is the usual one.
var transitions = map[Action]map[Status][]Status{
	ActionClaim: {
		Pending:    {Processing},
		Blocked:    {Processing},
		Processing: {Processing}, // by its owner, or after the claim expired
	},
	ActionExtend:  {Processing: {Processing}},
	ActionUnclaim: {Processing: {Pending, Blocked}},
	ActionFail:    {Processing: {Pending, Failed, Suspended}},
	ActionSettle:  operators(Resolved), // only from Processing while somebody claims it

	// Not Blocked: the order of the aggregate is kept.
	ActionReplay: {
		Pending:    {Pending},
		Processing: {Pending},
		Failed:     {Pending},
		Suspended:  {Pending},
	},
	ActionDiscard: operators(Resolved),
	ActionResolve: operators(Resolved),
	ActionSuspend: operators(Suspended),
	ActionReopen:  {Resolved: {Suspended}}, // not one whose event was published
	ActionUnblock: {
		Pending:    {Suspended},
		Processing: {Suspended},
		Failed:     {Suspended},
		Suspended:  {Suspended},
	},
	ActionEdit:     editing(),
	ActionRedirect: editing(),
	ActionSet: {
		Pending:    {Pending},
		Blocked:    {Blocked},
		Processing: {Processing}, // after the claim expired
		Failed:     {Failed},
		Suspended:  {Suspended},
		Resolved:   {Resolved},
	},
	ActionArchive: {Resolved: {Archived}, Failed: {Archived}},
	// Failed and Suspended only if it is forced.
	ActionPurge:   {Resolved: {Archived}, Archived: {Archived}, Failed: {Archived}, Suspended: {Archived}},
	ActionRestore: {Archived: {Resolved, Suspended}},
}

// editing returns the transitions of an edit. A blocked one remains blocked: its new content is
// published in its turn.
func editing() map[Status][]Status {
	return map[Status][]Status{Pending: {Pending}, Blocked: {Blocked}, Processing: {Pending}, Failed: {Pending}, Suspended: {Pending}}
}

// operators returns the transitions of an operator's action: from every open status,
// from Processing only after the claim has expired.
func operators(to Status) map[Status][]Status {
	m := make(map[Status][]Status)
	for _, s := range []Status{Pending, Blocked, Processing, Failed, Suspended} {
		m[s] = []Status{to}
	}
	return m
}
