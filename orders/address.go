package orders

// Address is the delivery address of an order, in the country of the order.
type Address struct {
	Name     string `json:"name" minLength:"1" maxLength:"100" doc:"Name of the recipient"`
	Street   string `json:"street" minLength:"1" maxLength:"200" doc:"Street and number"`
	City     string `json:"city" minLength:"1" maxLength:"100"`
	Region   string `json:"region,omitempty" nullable:"true" maxLength:"100"`
	Postcode string `json:"postcode,omitempty" nullable:"true" maxLength:"64"`
}

// MaxAddress is the most characters that any field of an Address has, its street.
const MaxAddress = 200

func (a *Address) validate(bad *InvalidError, at string) {
	checkText(bad, at+"name", a.Name, 1, MaxCountry)
	checkText(bad, at+"street", a.Street, 1, MaxAddress)
	checkText(bad, at+"city", a.City, 1, MaxCountry)
	checkText(bad, at+"region", a.Region, 0, MaxCountry)
	checkText(bad, at+"postcode", a.Postcode, 0, MaxReference)
}

// The keys of an address in the database.
const (
	addressName     = "name"
	addressStreet   = "street"
	addressCity     = "city"
	addressRegion   = "region"
	addressPostcode = "postcode"
)

// cells returns the address as a CQL map; empty fields are omitted.
func (a *Address) cells() map[string]string {
	m := make(map[string]string, 5)
	for k, v := range map[string]string{
		addressName: a.Name, addressStreet: a.Street, addressCity: a.City, addressRegion: a.Region, addressPostcode: a.Postcode,
	} {
		if v != "" {
			m[k] = v
		}
	}
	return m
}

// parseAddress is the reverse of cells. It returns nil for an empty map.
func parseAddress(m map[string]string) *Address {
	if len(m) == 0 {
		return nil
	}
	return &Address{
		Name: m[addressName], Street: m[addressStreet], City: m[addressCity], Region: m[addressRegion], Postcode: m[addressPostcode],
	}
}
