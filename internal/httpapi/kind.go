package httpapi

// ProblemKind is an entry of an API's error catalogue.
type ProblemKind struct {
	// Type is the problem's type.
	Type string `json:"type" format:"uri"`
	// Status is the HTTP status it comes with.
	Status int `json:"status"`
	// Meaning says what happened, and Do what to do about it.
	Meaning string `json:"meaning"`
	Do      string `json:"do"`
	// Retry says whether the same request may succeed later.
	Retry bool `json:"retry" doc:"The same request may succeed later"`
}
