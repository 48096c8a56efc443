package delivery

import (
	"encoding/json"
	"strings"
	"time"
)

const (
	// MaxTries is the number of stored attempts of a delivery: the last ones.
	MaxTries = 20
	// maxTryError bounds the error of each, in bytes; that of the last attempt is whole
	// in Delivery.Error.
	maxTryError = 500
)

// Try is an attempt of a delivery.
type Try struct {
	At     time.Time `json:"at" doc:"Time of the call of the plugin"`
	TookMS int64     `json:"took_ms" doc:"How long it took, in milliseconds"`
	Repeat int       `json:"repeat,omitempty" doc:"How often the delivery had been repeated before"`
	Error  string    `json:"error,omitempty" doc:"Why the event was not taken, up to 500 bytes; absent if it was"`
}

// Tried adds an attempt with its start, its duration and its error, "" for
// success. Beyond MaxTries the oldest are removed.
func (d *Delivery) Tried(at time.Time, took time.Duration, failed string) {
	d.Tries = append(d.Tries, Try{At: at.UTC().Truncate(time.Millisecond), TookMS: took.Milliseconds(), Repeat: d.Repeats, Error: cut(failed)})
	d.Tries = d.Tries[max(0, len(d.Tries)-MaxTries):]
}

// cut bounds an error's text.
func cut(text string) string {
	if len(text) <= maxTryError {
		return text
	}
	return strings.ToValidUTF8(text[:maxTryError], "") + "…"
}

// tries are they as the row has them.
func (d *Delivery) tries() (string, error) {
	if len(d.Tries) == 0 {
		return "", nil
	}
	b, err := json.Marshal(d.Tries)
	return string(b), err
}
