package orders

import "time"

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
