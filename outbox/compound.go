package outbox

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

// join returns the id of an aggregate from the texts of its columns; zero if one is empty. bad
// is the problem of a part that contains the separator, so that two aggregates could be one.
func (c *column) join(parts []string) (id ID, bad error) {
	for i, p := range parts {
		switch {
		case p == "":
			return ID{}, nil
		case i < len(parts)-1 && strings.Contains(p, AggregateSeparator):
			bad = &rowError{Column: c.parts[i].name, Problem: "contains " + AggregateSeparator + ", which separates it from the next part of the aggregate"}
		}
	}
	return IDFromText(strings.Join(parts, AggregateSeparator)), bad
}

// split is the reverse of join: it returns the ids of the columns. ok is false if they cannot
// contain the id.
func (c *column) split(id ID) (parts []ID, ok bool) {
	if c.parts == nil {
		return []ID{id}, id.fits(c.typ)
	}
	texts := strings.SplitN(id.String(), AggregateSeparator, len(c.parts))
	if len(texts) != len(c.parts) {
		return nil, false
	}
	for i, text := range texts {
		part := IDFromText(text)
		if part.IsZero() || !part.fits(c.parts[i].typ) {
			return nil, false
		}
		parts = append(parts, part)
	}
	return parts, true
}

// arguments returns the values of the columns of an aggregate. An id that does not fit has
// values of no row.
func (c *column) arguments(id ID) []any {
	parts, ok := c.split(id)
	if !ok {
		parts = make([]ID, len(c.each()))
	}
	out := make([]any, len(parts))
	for i, p := range c.each() {
		out[i] = idValue(p.typ, parts[i])
	}
	return out
}

// where returns the condition on the columns of an aggregate, whose values are arguments.
func (c *column) where() string {
	conditions := make([]string, 0, 1)
	for _, p := range c.each() {
		conditions = append(conditions, quote(p.name)+" = ?")
	}
	return strings.Join(conditions, " AND ")
}

// compoundToken returns the token of the partition of an aggregate with several columns, 0 if it
// does not have one of its own: without numbers, the partition may have other columns, too.
func (l *layout) compoundToken(id ID) int64 {
	c := &l.columns[fieldAggregateID]
	parts, ok := c.split(id)
	if !ok || !l.byAggregate() {
		return 0
	}
	var key []byte
	for _, name := range l.partition {
		i := slices.IndexFunc(c.parts, func(p column) bool { return p.name == name })
		value := c.parts[i].encodeID(parts[i])
		key = append(binary.BigEndian.AppendUint16(key, uint16(len(value))), value...)
		key = append(key, 0)
	}
	return keys.Token(key)
}

// encodeID returns an id as the CQL value of its column.
func (c *column) encodeID(id ID) []byte {
	switch v := idValue(c.typ, id).(type) {
	case gocql.UUID:
		return v[:]
	case string:
		return []byte(v)
	case int64:
		if c.typ == typeInt {
			return binary.BigEndian.AppendUint32(nil, uint32(v))
		}
		return binary.BigEndian.AppendUint64(nil, uint64(v))
	default:
		return nil
	}
}

// scanAggregate is rows.ScanAggregate.
func (t Table) scanAggregate(iter *gocql.Iter) (id ID, ok bool) {
	if iter == nil {
		return ID{}, false
	}
	c := &t.columnLayout().columns[fieldAggregateID]
	if c.parts == nil {
		ok = iter.Scan(&id)
		return id, ok
	}
	parts := make([]textScan, len(c.parts))
	dest := make([]any, len(parts))
	for i := range parts {
		parts[i].typ, dest[i] = c.parts[i].typ, &parts[i]
	}
	if !iter.Scan(dest...) {
		return ID{}, false
	}
	id, _ = c.join(texts(parts))
	return id, true
}

// texts returns the scanned texts, empty for null.
func texts(scanned []textScan) []string {
	out := make([]string, len(scanned))
	for i := range scanned {
		if scanned[i].ok {
			out[i] = scanned[i].text
		}
	}
	return out
}
