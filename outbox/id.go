package outbox

import (
	"errors"
	"strconv"

	"github.com/gocql/gocql"
	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/keys"
)

// ID identifies an event or an aggregate: a UUID, a text or a number. IDs are equal if their
// published forms (String) are: IDFromInt(7) is IDFromText("7"), and a UUID is its text of 36
// characters in lower case. The zero ID is no id.
//
// An ID is an argument of a gocql statement as it is, in the type of its column.
type ID struct {
	uuid gocql.UUID // of a text the one that is derived from it; zero for the zero ID alone
	text string     // empty for a UUID
}

// IDFromUUID returns the id of a UUID: of gocql, of the Apache driver, of google/uuid or any
// other type made of 16 bytes. The zero UUID is the zero ID.
func IDFromUUID(u [16]byte) ID { return ID{uuid: u} }

// IDFromText returns the id of a text. The empty text is the zero ID.
func IDFromText(text string) ID {
	if text == "" {
		return ID{}
	}
	if u, ok := keys.ParseUUID(text); ok {
		return ID{uuid: u}
	}
	return ID{keys.IDOf(text), text}
}

// IDFromInt returns the id of a number.
func IDFromInt(n int64) ID { return IDFromText(strconv.FormatInt(n, 10)) }

// NewID returns a new UUIDv7: unique, and ordered by time to the millisecond.
func NewID() ID {
	// NewV7 fails only if the system's random source does, which crypto/rand
	// turns into a crash of the process.
	return ID{uuid: gocql.UUID(uuid.Must(uuid.NewV7()))}
}

// NameID derives an id from a namespace and names, deterministically: a
// name-based UUIDv5 (SHA-1). It gives a retried request the ids of its first
// attempt. Names are delimited, so ("ab", "c") and ("a", "bc") differ.
//
// Anyone with the namespace and the names can compute the id; it is not a
// secret.
func NameID(namespace [16]byte, names ...string) ID {
	n := 0
	for _, s := range names {
		n += len(s) + 1
	}
	data := make([]byte, 0, n)
	for _, s := range names {
		data = append(data, s...)
		data = append(data, 0)
	}
	return ID{uuid: gocql.UUID(uuid.NewSHA1(uuid.UUID(namespace), data))}
}

// String returns the published form of the id: in ce_id, ce_subject and the record key. That of
// the zero ID is the zero UUID's.
func (id ID) String() string {
	if id.text != "" {
		return id.text
	}
	return id.uuid.String()
}

// UUID returns the UUID of the id. For a text or a number it is derived, the same in every
// process and language: the UUIDv5 in the namespace
// 8fc7e6f0-c441-54a3-8044-0e1b0e980c83. Tables of dead letters have it.
func (id ID) UUID() gocql.UUID { return id.uuid }

// IsUUID reports whether the id is a UUID, not a text or a number.
func (id ID) IsUUID() bool { return id.text == "" && !id.IsZero() }

// IsZero reports whether the id is missing.
func (id ID) IsZero() bool { return id.uuid == gocql.UUID{} }

// append appends String to dst, without an allocation of its own.
func (id *ID) append(dst []byte) []byte {
	if id.text != "" {
		return append(dst, id.text...)
	}
	return keys.AppendUUID(dst, id.uuid)
}

// MarshalText returns String.
func (id ID) MarshalText() ([]byte, error) { return id.append(make([]byte, 0, id.size())), nil }

// UnmarshalText sets the id to that of its published form, as IDFromText returns it.
func (id *ID) UnmarshalText(text []byte) error {
	*id = IDFromText(string(text))
	return nil
}

// size is the length of String, or more.
func (id *ID) size() int { return max(36, len(id.text)) }

// typeOfColumn returns the type of a column that the driver describes.
func typeOfColumn(info gocql.TypeInfo) (name string, typ columnType, ok bool) {
	if info == nil {
		return "unknown", "", false
	}
	name = info.Type().String()
	typ, ok = parseType(name)
	return name, typ, ok
}

// MarshalCQL encodes the id for a column of type uuid, timeuuid, text, bigint or int.
func (id ID) MarshalCQL(info gocql.TypeInfo) ([]byte, error) {
	name, typ, ok := typeOfColumn(info)
	switch {
	case !ok:
		return nil, errors.New("outbox: column of type " + name + " cannot hold an id: use uuid, timeuuid, text, bigint or int")
	case id.IsZero():
		return nil, nil // null
	case !id.fits(typ):
		return nil, errors.New("outbox: column of type " + string(typ) + " cannot hold id " + strconv.Quote(id.String()))
	}
	return gocql.Marshal(info, idValue(typ, id))
}

// UnmarshalCQL decodes a column of one of these types; null is the zero ID.
func (id *ID) UnmarshalCQL(info gocql.TypeInfo, data []byte) error {
	*id = ID{}
	name, typ, ok := typeOfColumn(info)
	if !ok {
		return errors.New("outbox: column of type " + name + " holds no id: use uuid, timeuuid, text, bigint or int")
	}
	switch {
	case len(data) == 0:
		return nil
	case typ == typeUUID || typ == typeTimeUUID:
		return gocql.Unmarshal(info, data, &id.uuid)
	}
	return (&idScan{typ, id}).UnmarshalCQL(info, data)
}
