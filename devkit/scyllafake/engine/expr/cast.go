package expr

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// castFunction returns CAST(… AS to) of a value of type from.
func castFunction(from, to *cqltype.Type) (*function, error) {
	f := &function{name: "castas" + to.String(), args: types(from), ret: to}
	switch {
	case to.Kind == cqltype.Varchar && !from.IsCollection() && from.Kind != cqltype.UDT && from.Kind != cqltype.Tuple,
		to.Kind == cqltype.ASCII && from.Kind != cqltype.Varchar && !from.IsCollection() && from.Kind != cqltype.UDT && from.Kind != cqltype.Tuple:
		f.call = func(_ *EvalCtx, args [][]byte) ([]byte, error) { return []byte(from.Text(args[0])), nil }
	case isNumber(from) && isNumber(to) && to.Kind != cqltype.Counter:
		f.call = func(_ *EvalCtx, args [][]byte) ([]byte, error) {
			if len(args[0]) == 0 {
				return args[0], nil
			}
			return castNumber(from, to, args[0])
		}
	case to.Kind == cqltype.Timestamp && from.Kind == cqltype.TimeUUID:
		f.call = pure(uuidTimestamp)
	case to.Kind == cqltype.Timestamp && from.Kind == cqltype.Date:
		f.call = pure(dateTimestamp)
	case to.Kind == cqltype.Date && from.Kind == cqltype.TimeUUID:
		f.call = pure(func(v []byte) []byte { return dateOfMillis(cqltype.TimeUUIDMillis(v)) })
	case to.Kind == cqltype.Date && from.Kind == cqltype.Timestamp:
		f.call = pure(func(v []byte) []byte { return dateOfMillis(int64(binary.BigEndian.Uint64(v))) })
	default:
		return nil, cqlerr.Invalidf("%s cannot be cast to %s", from, to)
	}
	return f, nil
}

// castNumber converts between numeric types. Integers wrap as in a narrower type;
// fractions are cut off.
func castNumber(from, to *cqltype.Type, v []byte) ([]byte, error) {
	switch from.Kind {
	case cqltype.Float, cqltype.Double:
		f := decodeDouble(v)
		if from.Kind == cqltype.Float {
			f = float64(decodeFloat(v))
		}
		return fromFloat(to, f)
	case cqltype.Decimal:
		return castDecimal(to, v)
	case cqltype.Varint:
		return fromInt(to, cqltype.DecodeVarint(v))
	}
	n, _ := from.DecodeInt(v)
	return fromInt(to, big.NewInt(n))
}

func castDecimal(to *cqltype.Type, v []byte) ([]byte, error) {
	if to.Kind == cqltype.Decimal {
		return v, nil
	}
	unscaled, scale := cqltype.DecodeDecimal(v)
	factor, err := pow10(int64(scale))
	if err != nil {
		return nil, err
	}
	if to.Kind == cqltype.Float || to.Kind == cqltype.Double {
		r := new(big.Rat).SetInt(unscaled)
		if scale >= 0 {
			r.Quo(r, new(big.Rat).SetInt(factor))
		} else {
			r.Mul(r, new(big.Rat).SetInt(factor))
		}
		f, _ := r.Float64()
		return fromFloat(to, f)
	}
	if scale >= 0 {
		return fromInt(to, unscaled.Quo(unscaled, factor))
	}
	return fromInt(to, unscaled.Mul(unscaled, factor))
}

func fromFloat(to *cqltype.Type, f float64) ([]byte, error) {
	switch to.Kind {
	case cqltype.Float:
		return cqltype.EncodeFloat(float32(f)), nil
	case cqltype.Double:
		return cqltype.EncodeDouble(f), nil
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, cqlerr.Invalidf("cannot cast %v to %s", f, to)
	}
	if to.Kind == cqltype.Decimal {
		// The shortest decimal that parses to the same number.
		return cqltype.TDecimal.FromText(strconv.FormatFloat(f, 'f', -1, 64))
	}
	n, _ := new(big.Float).SetFloat64(f).Int(nil)
	return fromInt(to, n)
}

func fromInt(to *cqltype.Type, n *big.Int) ([]byte, error) {
	switch to.Kind {
	case cqltype.Varint:
		return cqltype.EncodeVarint(n), nil
	case cqltype.Decimal:
		return cqltype.EncodeDecimal(n, 0), nil
	case cqltype.Float, cqltype.Double:
		f, _ := new(big.Float).SetInt(n).Float64()
		return fromFloat(to, f)
	}
	size := to.FixedSize()
	low := new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	full := binary.BigEndian.AppendUint64(nil, low)
	return full[8-size:], nil
}
