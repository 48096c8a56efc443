package orders

import (
	"context"

	"github.com/gocql/gocql"
)

// Preview is the result that a change would have on the current order.
type Preview struct {
	Change  Change `json:"change" enum:"update,confirm,ship,cancel"`
	Allowed bool   `json:"allowed" doc:"The change is allowed unless a concurrent change comes first"`
	Refusal string `json:"refusal,omitempty" doc:"Why it would be refused"`
	// Status and Version are the current ones, StatusAfter and VersionAfter those
	// after the change. They are equal if the change is refused.
	Status       Status `json:"status" enum:"placed,confirmed,shipped,cancelled"`
	Version      int64  `json:"version"`
	StatusAfter  Status `json:"status_after" enum:"placed,confirmed,shipped,cancelled"`
	VersionAfter int64  `json:"version_after"`
	EventType    string `json:"event_type,omitempty" doc:"The event that would be published"`
}

// Preview returns the result that a change would have, by the same rules,
// without storing anything. Errors are as for Get.
func (s *Service) Preview(ctx context.Context, id gocql.UUID, c Change) (Preview, error) {
	o, err := s.Get(ctx, id)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Change: c, Status: o.Status, Version: o.Version, StatusAfter: o.Status, VersionAfter: o.Version}
	to, refused := o.allows(c)
	if refused != nil {
		p.Refusal = refused.Reason()
		return p, nil
	}
	p.Allowed, p.StatusAfter, p.VersionAfter, p.EventType = true, to, o.Version+1, c.eventType()
	return p, nil
}
