package stream

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
)

// Position is the next offset by topic and partition.
type Position map[string]map[int32]int64

// everything marks the position of a subscription to all topics. No topic has that name.
const everything = "*"

// maxPosition bounds the text form of a position.
const maxPosition = 32 << 10

var errPosition = errors.New("is not a position of this API")

// String returns the text form of the position.
func (p Position) String() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // maps of numbers are always marshalled
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParsePosition parses the text form of a position.
func ParsePosition(s string) (Position, error) {
	if len(s) > maxPosition {
		return nil, errPosition
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, errPosition
	}
	var p Position
	if err := json.Unmarshal(b, &p); err != nil || p == nil {
		return nil, errPosition
	}
	for _, partitions := range p {
		for partition, offset := range partitions {
			if partition < 0 || offset < 0 {
				return nil, errPosition
			}
		}
	}
	return p, nil
}

func (p Position) set(topic string, partition int32, next int64) {
	if p[topic] == nil {
		p[topic] = make(map[int32]int64)
	}
	p[topic][partition] = next
}

// at returns the next offset; false if the position has none.
func (p Position) at(topic string, partition int32) (int64, bool) {
	next, ok := p[topic][partition]
	return next, ok
}

func (p Position) clone() Position {
	out := make(Position, len(p))
	for t, ps := range p {
		out[t] = maps.Clone(ps)
	}
	return out
}

// ofAll returns the position of a subscription to all topics. If it is already one,
// topics without offsets were created in the meantime and are read from their start.
func (p Position) ofAll(topics []string) Position {
	if p[everything] == nil {
		return p
	}
	out := p.clone()
	for _, name := range topics {
		if out[name] == nil {
			out[name] = make(map[int32]int64)
		}
	}
	return out
}
