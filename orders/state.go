package orders

// Status is where an order stands.
type Status string

// The statuses of an order.
const (
	StatusPlaced    Status = "placed"
	StatusConfirmed Status = "confirmed"
	StatusShipped   Status = "shipped"
	StatusCancelled Status = "cancelled"
)

// Statuses are all of them, in the order in which an order goes through them.
var Statuses = []Status{StatusPlaced, StatusConfirmed, StatusShipped, StatusCancelled}

// Change is what a caller may do to an order that is there.
type Change string

// The changes.
const (
	ChangeUpdate  Change = "update"
	ChangeConfirm Change = "confirm"
	ChangeShip    Change = "ship"
	ChangeCancel  Change = "cancel"
)

// Changes are all of them.
var Changes = []Change{ChangeUpdate, ChangeConfirm, ChangeShip, ChangeCancel}

// transitions are the changes that are allowed, and the status that each leads
// to. What is not here is refused. Nothing leads out of shipped or cancelled.
var transitions = map[Change]map[Status]Status{
	ChangeUpdate:  {StatusPlaced: StatusPlaced, StatusConfirmed: StatusConfirmed},
	ChangeConfirm: {StatusPlaced: StatusConfirmed},
	ChangeShip:    {StatusConfirmed: StatusShipped},
	ChangeCancel:  {StatusPlaced: StatusCancelled, StatusConfirmed: StatusCancelled},
}

// after returns the status to which c leads from s; false means that it is refused.
func (s Status) after(c Change) (Status, bool) {
	to, ok := transitions[c][s]
	return to, ok
}

// eventType is the type of the event that c writes. Confirming and shipping are
// updates whose event says so by its status: see docs/design/orders.md.
func (c Change) eventType() string {
	if c == ChangeCancel {
		return EventCancelled
	}
	return EventUpdated
}

// operation is c as idempotency_keys names it.
func (c Change) operation() string { return string(c) + " order" }
