package expr

import (
	"encoding/binary"
	"strings"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// function is one overload of a scalar function. Arguments are never unset; call is
// made with a null among them only if nulls is set.
type function struct {
	name  string // as called and in column names, lower case
	args  []*cqltype.Type
	ret   *cqltype.Type
	nulls bool
	call  func(x *EvalCtx, args [][]byte) ([]byte, error)
}

// functions contains the overloads by name.
var functions = indexFunctions()

func indexFunctions() map[string][]*function {
	out := map[string][]*function{}
	for _, list := range [][]function{idFunctions, timeFunctions, blobFunctions()} {
		for i := range list {
			f := &list[i]
			f.name = strings.ToLower(f.name)
			out[f.name] = append(out[f.name], f)
		}
	}
	return out
}

var idFunctions = []function{
	{name: "now", ret: cqltype.TTimeUUID, call: newTimeUUID},
	{name: "currentTimeUUID", ret: cqltype.TTimeUUID, call: newTimeUUID},
	{name: "uuid", ret: cqltype.TUUID, call: func(*EvalCtx, [][]byte) ([]byte, error) {
		u := uuid.New()
		return u[:], nil
	}},
	{name: "minTimeuuid", args: types(cqltype.TTimestamp), ret: cqltype.TTimeUUID, call: pure(func(v []byte) []byte {
		u := cqltype.MinTimeUUID(int64(binary.BigEndian.Uint64(v)))
		return u[:]
	})},
	{name: "maxTimeuuid", args: types(cqltype.TTimestamp), ret: cqltype.TTimeUUID, call: pure(func(v []byte) []byte {
		u := cqltype.MaxTimeUUID(int64(binary.BigEndian.Uint64(v)))
		return u[:]
	})},
}

var timeFunctions = []function{
	{name: "currentTimestamp", ret: cqltype.TTimestamp, call: func(x *EvalCtx, _ [][]byte) ([]byte, error) {
		return cqltype.EncodeInt64(x.Now.UnixMilli()), nil
	}},
	{name: "currentDate", ret: cqltype.TDate, call: func(x *EvalCtx, _ [][]byte) ([]byte, error) {
		return dateOfMillis(x.Now.UnixMilli()), nil
	}},
	{name: "currentTime", ret: cqltype.TTime, call: func(x *EvalCtx, _ [][]byte) ([]byte, error) {
		return cqltype.EncodeInt64(floorMod(x.Now.UnixMilli(), dayMillis) * 1e6), nil
	}},
	{name: "dateOf", args: types(cqltype.TTimeUUID), ret: cqltype.TTimestamp, call: pure(uuidTimestamp)},
	{name: "unixTimestampOf", args: types(cqltype.TTimeUUID), ret: cqltype.TBigInt, call: pure(uuidTimestamp)},
	{name: "toTimestamp", args: types(cqltype.TTimeUUID), ret: cqltype.TTimestamp, call: pure(uuidTimestamp)},
	{name: "toTimestamp", args: types(cqltype.TDate), ret: cqltype.TTimestamp, call: pure(dateTimestamp)},
	{name: "toUnixTimestamp", args: types(cqltype.TTimeUUID), ret: cqltype.TBigInt, call: pure(uuidTimestamp)},
	{name: "toUnixTimestamp", args: types(cqltype.TTimestamp), ret: cqltype.TBigInt, call: pure(func(v []byte) []byte { return v })},
	{name: "toUnixTimestamp", args: types(cqltype.TDate), ret: cqltype.TBigInt, call: pure(dateTimestamp)},
	{name: "toDate", args: types(cqltype.TTimeUUID), ret: cqltype.TDate, call: pure(func(v []byte) []byte {
		return dateOfMillis(cqltype.TimeUUIDMillis(v))
	})},
	{name: "toDate", args: types(cqltype.TTimestamp), ret: cqltype.TDate, call: pure(func(v []byte) []byte {
		return dateOfMillis(int64(binary.BigEndian.Uint64(v)))
	})},
}

func types(t ...*cqltype.Type) []*cqltype.Type { return t }

// pure makes a call of a function of one value; an empty value gives null.
func pure(f func([]byte) []byte) func(*EvalCtx, [][]byte) ([]byte, error) {
	return func(_ *EvalCtx, args [][]byte) ([]byte, error) {
		if len(args[0]) == 0 {
			return nil, nil
		}
		return f(args[0]), nil
	}
}

func newTimeUUID(x *EvalCtx, _ [][]byte) ([]byte, error) {
	u := x.Clock.timeUUID()
	return u[:], nil
}

const dayMillis = 24 * 60 * 60 * 1000

func floorMod(a, b int64) int64 { return (a%b + b) % b }

func dateOfMillis(ms int64) []byte {
	days := (ms - floorMod(ms, dayMillis)) / dayMillis
	return cqltype.EncodeUint32(uint32(days + 1<<31))
}

func uuidTimestamp(v []byte) []byte { return cqltype.EncodeInt64(cqltype.TimeUUIDMillis(v)) }

func dateTimestamp(v []byte) []byte {
	return cqltype.EncodeInt64((int64(binary.BigEndian.Uint32(v)) - 1<<31) * dayMillis)
}

// blobFunctions returns typeAsBlob and blobAsType for every type but blob itself.
func blobFunctions() []function {
	var out []function
	add := func(name string, t *cqltype.Type) {
		out = append(out,
			function{name: name + "AsBlob", args: types(t), ret: cqltype.TBlob, call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
				return args[0], nil
			}},
			function{name: "blobAs" + name, args: types(cqltype.TBlob), ret: t, call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
				return args[0], t.Validate(args[0])
			}})
	}
	for _, t := range cqltype.Primitives() {
		switch t.Kind {
		case cqltype.Blob, cqltype.Counter:
		case cqltype.Varchar:
			add("text", t)
			add("varchar", t)
		default:
			add(t.String(), t)
		}
	}
	return out
}
