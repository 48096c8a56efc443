package dlq

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
)

// Difference describes the effect of an edit.
type Difference struct {
	// Payload is a unified diff, empty if the payload is the same. JSON is compared
	// line by line, indented and with its keys in their order; binary data is compared
	// as a hex dump.
	Payload string `json:"payload,omitempty"`
	// Headers are the headers that differ, by name. The content type is included as
	// content-type.
	Headers []HeaderChange `json:"headers,omitempty"`
}

// HeaderChange is a header that differs; nil is one that is not there.
type HeaderChange struct {
	Name string  `json:"name"`
	Old  *string `json:"old"`
	New  *string `json:"new"`
}

// Empty reports whether there is no difference.
func (d *Difference) Empty() bool { return d.Payload == "" && len(d.Headers) == 0 }

// ChangedParts names what differs, without contents: "payload", and the names of headers.
func (d *Difference) ChangedParts() (names []string) {
	if d.Payload != "" {
		names = append(names, "payload")
	}
	for i := range d.Headers {
		names = append(names, "header "+d.Headers[i].Name)
	}
	return names
}

// Diff returns the difference between two contents of a dead letter.
func Diff(before, after Edit) Difference {
	var d Difference
	if !bytes.Equal(before.Payload, after.Payload) {
		a, b := forDiff(before.Payload), forDiff(after.Payload)
		if a == b { // they differ in white space alone
			a, b = string(before.Payload)+"\n", string(after.Payload)+"\n"
		}
		d.Payload = udiff.Unified("before", "after", a, b)
	}
	if before.ContentType != after.ContentType {
		d.Headers = append(d.Headers, HeaderChange{"content-type", &before.ContentType, &after.ContentType})
	}
	names := slices.Sorted(maps.Keys(before.Headers))
	for name := range after.Headers {
		if _, ok := before.Headers[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, had := before.Headers[name]
		is, has := after.Headers[name]
		if had == has && was == is {
			continue
		}
		c := HeaderChange{Name: name}
		if had {
			c.Old = &was
		}
		if has {
			c.New = &is
		}
		d.Headers = append(d.Headers, c)
	}
	return d
}

// forDiff is a payload in lines.
func forDiff(payload []byte) string {
	var pretty bytes.Buffer
	switch {
	case json.Indent(&pretty, payload, "", "  ") == nil:
		return pretty.String() + "\n"
	case !utf8.Valid(payload):
		return hex.Dump(payload)
	case len(payload) == 0:
		return ""
	}
	return string(payload) + "\n"
}
