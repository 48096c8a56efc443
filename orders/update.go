package orders

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"
)

// Update is the input of Update; nil fields keep their values. Lines replace
// all lines, and the total is computed from them.
type Update struct {
	Country *string   `json:"country,omitempty" minLength:"1" maxLength:"100"`
	Address *Address  `json:"address,omitempty" doc:"Replaces the address as a whole"`
	Lines   []NewLine `json:"lines,omitempty" minItems:"1" maxItems:"500" nullable:"false" doc:"Replaces all lines"`
}

// Confirmation is the input of Confirm. It has no fields yet.
type Confirmation struct{}

// Shipment is the input of Ship.
type Shipment struct {
	Carrier  string `json:"carrier,omitempty" nullable:"true" maxLength:"64" doc:"Carrier"`
	Tracking string `json:"tracking,omitempty" nullable:"true" maxLength:"64" doc:"The carrier's number"`
	// ShippedAt defaults to now.
	ShippedAt *time.Time `json:"shipped_at,omitempty" nullable:"true" doc:"Default: now"`
}

// Validate returns nil or an *InvalidError with every invalid field. Prices are
// checked against the currency when the order is known.
func (u *Update) Validate() error {
	var bad InvalidError
	if u.Country == nil && u.Address == nil && u.Lines == nil {
		bad.Add("", "must have country, address or lines")
	}
	if u.Country != nil {
		checkText(&bad, "country", *u.Country, 1, MaxCountry)
	}
	if u.Address != nil {
		u.Address.validate(&bad, "address.")
	}
	if u.Lines != nil {
		validateLines(&bad, u.Lines, "")
	}
	return bad.OrNil()
}

// Validate returns nil: a Confirmation is always valid.
func (*Confirmation) Validate() error { return nil }

// Validate returns nil or an *InvalidError that names every bad field.
func (h *Shipment) Validate() error {
	var bad InvalidError
	checkText(&bad, "carrier", h.Carrier, 0, MaxReference)
	checkText(&bad, "tracking", h.Tracking, 0, MaxReference)
	checkTime(&bad, "shipped_at", h.ShippedAt)
	return bad.OrNil()
}

// Update changes lines, address or country of an order that is placed or
// confirmed and stores its OrderUpdated event.
//
// Errors are as for Cancel. A price that does not fit the currency of the
// order is an *InvalidError, and nothing is stored.
func (s *Service) Update(ctx context.Context, id gocql.UUID, u Update, opts WriteOptions) (Result, error) {
	if err := errors.Join(u.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	return s.change(ctx, id, edit{ChangeUpdate, newChangeRequest(id, u, opts), func(o *Order, _ time.Time) error {
		if u.Country != nil {
			o.Country = *u.Country
		}
		if u.Address != nil {
			o.Address = u.Address
		}
		if u.Lines == nil {
			return nil
		}
		var bad InvalidError
		validateLines(&bad, u.Lines, o.Currency)
		if err := bad.OrNil(); err != nil {
			return err
		}
		return o.setLines(u.Lines)
	}}, opts)
}

// Confirm confirms an order that is placed. Its event is an OrderUpdated with
// the status confirmed. Errors are as for Cancel.
func (s *Service) Confirm(ctx context.Context, id gocql.UUID, c Confirmation, opts WriteOptions) (Result, error) {
	if err := validateKey(opts.IdempotencyKey); err != nil {
		return Result{}, err
	}
	return s.change(ctx, id, edit{ChangeConfirm, newChangeRequest(id, c, opts), func(o *Order, at time.Time) error {
		o.ConfirmedAt = &at
		return nil
	}}, opts)
}

// Ship marks a confirmed order as shipped. Its event is an OrderUpdated with
// the status shipped. The order can no longer be changed. Errors are as for
// Cancel.
func (s *Service) Ship(ctx context.Context, id gocql.UUID, h Shipment, opts WriteOptions) (Result, error) {
	if err := errors.Join(h.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	return s.change(ctx, id, edit{ChangeShip, newChangeRequest(id, h, opts), func(o *Order, at time.Time) error {
		if h.ShippedAt != nil {
			at = millis(*h.ShippedAt)
		}
		o.ShippedAt = &at
		o.Carrier, o.Tracking = h.Carrier, h.Tracking
		return nil
	}}, opts)
}
