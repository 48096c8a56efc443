package api

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Texts whose form the description of the API states.
type (
	topicPattern string
	typePattern  string
	startText    string
	seekText     string
)

// Schema describes a name of a topic with *.
func (topicPattern) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: `^([a-zA-Z0-9_*-][a-zA-Z0-9._*-]{0,248}|\.[a-zA-Z0-9_*-][a-zA-Z0-9._*-]{0,247}|\.\.[a-zA-Z0-9._*-]{1,247})$`}
}

// Schema describes a name of a type with *.
func (typePattern) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MinLength: new(1), MaxLength: new(249)}
}

// Schema describes where a partition without a position begins.
func (startText) Schema(huma.Registry) *huma.Schema {
	return timeOr(subscriptions.StartLatest + "|" + subscriptions.StartEarliest + "|")
}

// Schema describes the target of a seek.
func (seekText) Schema(huma.Registry) *huma.Schema {
	return timeOr(subscriptions.StartLatest + "|" + subscriptions.StartEarliest + "|offset")
}

// timeOr describes a time or one of the words. It is no anyOf, for which generated clients have a
// type of their own.
func timeOr(words string) *huma.Schema {
	const time = `[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
	return &huma.Schema{Type: huma.TypeString, Pattern: "^(" + words + "|" + time + ")$"}
}
