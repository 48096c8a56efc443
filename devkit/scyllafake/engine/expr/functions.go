package expr

import (
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// function is a scalar function. Its arguments are never unset or null: a null among
// them is the result.
type function struct {
	name string // as in column names, lower case
	args []*cqltype.Type
	ret  *cqltype.Type
	call func(x *EvalCtx, args [][]byte) ([]byte, error)
}

// functions contains the functions by name; token is that of a table.
var functions = map[string]*function{
	"now": {name: "now", ret: cqltype.TTimeUUID, call: func(x *EvalCtx, _ [][]byte) ([]byte, error) {
		u := x.Clock.timeUUID()
		return u[:], nil
	}},
	"uuid": {name: "uuid", ret: cqltype.TUUID, call: func(*EvalCtx, [][]byte) ([]byte, error) {
		u := uuid.New()
		return u[:], nil
	}},
	"totimestamp": ofOne("totimestamp", cqltype.TTimeUUID, cqltype.TTimestamp, func(v []byte) []byte {
		return cqltype.EncodeInt64(cqltype.TimeUUIDMillis(v))
	}),
	"mintimeuuid": ofOne("mintimeuuid", cqltype.TTimestamp, cqltype.TTimeUUID, func(v []byte) []byte {
		u := cqltype.MinTimeUUID(int64(binary.BigEndian.Uint64(v)))
		return u[:]
	}),
	"maxtimeuuid": ofOne("maxtimeuuid", cqltype.TTimestamp, cqltype.TTimeUUID, func(v []byte) []byte {
		u := cqltype.MaxTimeUUID(int64(binary.BigEndian.Uint64(v)))
		return u[:]
	}),
}

// ofOne returns a function of one value; an empty value gives null.
func ofOne(name string, arg, ret *cqltype.Type, f func([]byte) []byte) *function {
	return &function{name: name, args: []*cqltype.Type{arg}, ret: ret, call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
		if len(args[0]) == 0 {
			return nil, nil
		}
		return f(args[0]), nil
	}}
}

// function finds the function that a call with n arguments names.
func (p *Compiler) function(name cql.Name, n int) (*function, error) {
	fn := functions[name.Name]
	if name.Name == "token" {
		fn = tokenFunction(p.Table)
	}
	switch {
	case fn == nil || name.Keyspace != "" && name.Keyspace != "system":
		return nil, cqlerr.Unsupported("the function " + name.Name + "()")
	case n != len(fn.args):
		return nil, cqlerr.Invalidf("Invalid number of arguments in call to function system.%s: %d required but %d provided", fn.name, len(fn.args), n)
	}
	return fn, nil
}

// tokenFunction returns token() over the partition key of t.
func tokenFunction(t *catalog.Table) *function {
	args := make([]*cqltype.Type, len(t.PartitionKey))
	for i, c := range t.PartitionKey {
		args[i] = c.Type
	}
	return &function{name: "token", args: args, ret: cqltype.TBigInt, call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
		key, err := t.EncodeKey(args)
		if err != nil {
			return nil, cqlerr.Invalidf("%v", err)
		}
		return encodeToken(t.Token(key)), nil
	}}
}

// encodeToken encodes a token as token() returns it. ScyllaDB's smallest token, that of
// log keys that are not stream ids, encodes as 0.
func encodeToken(t int64) []byte {
	if t == catalog.MinToken {
		t = 0
	}
	return cqltype.EncodeInt64(t)
}
