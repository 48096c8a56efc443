package httpapi

// ProblemKind is an entry of an API's error catalogue.
type ProblemKind struct {
	// Type is the type of the problem.
	Type string `json:"type" format:"uri"`
	// Status is its HTTP status.
	Status int `json:"status"`
	// Meaning is the meaning of the problem, and Do the suggested fix.
	Meaning string `json:"meaning"`
	Do      string `json:"do"`
	// Retry reports whether the same request may succeed later.
	Retry bool `json:"retry" doc:"The same request may succeed later"`
}
