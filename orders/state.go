package orders

// Status is the state of an order.
type Status string

// The statuses of an order.
const (
	StatusPlaced    Status = "placed"
	StatusConfirmed Status = "confirmed"
	StatusShipped   Status = "shipped"
	StatusCancelled Status = "cancelled"
)

// Statuses are all statuses, in the order of the lifecycle.
var Statuses = []Status{StatusPlaced, StatusConfirmed, StatusShipped, StatusCancelled}

// Change is a change of an existing order.
type Change string

// The changes.
const (
	ChangeUpdate  Change = "update"
	ChangeConfirm Change = "confirm"
	ChangeShip    Change = "ship"
	ChangeCancel  Change = "cancel"
)

// Changes are all changes.
var Changes = []Change{ChangeUpdate, ChangeConfirm, ChangeShip, ChangeCancel}

// transitions are the allowed changes with the resulting status. Shipped and
// cancelled are final.
var transitions = map[Change]map[Status]Status{
	ChangeUpdate:  {StatusPlaced: StatusPlaced, StatusConfirmed: StatusConfirmed},
	ChangeConfirm: {StatusPlaced: StatusConfirmed},
	ChangeShip:    {StatusConfirmed: StatusShipped},
	ChangeCancel:  {StatusPlaced: StatusCancelled, StatusConfirmed: StatusCancelled},
}

// after returns the status after c. It returns false if c is refused.
func (s Status) after(c Change) (Status, bool) {
	to, ok := transitions[c][s]
	return to, ok
}

// eventType is the type of the event of c. Confirming and shipping write an
// OrderUpdated with the new status: see docs/design/orders.md.
func (c Change) eventType() string {
	if c == ChangeCancel {
		return EventCancelled
	}
	return EventUpdated
}

// operation is the operation of c in idempotency_keys.
func (c Change) operation() string { return string(c) + " order" }
