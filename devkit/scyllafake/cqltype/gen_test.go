package cqltype

import (
	"math"
	"math/big"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestMain(m *testing.M) {
	seeds.Rapid()
	os.Exit(m.Run())
}

// keyTypes are the types that are allowed in a clustering key, and otherTypes the others
// without parameters.
var (
	keyTypes = []*Type{
		TASCII, TBigInt, TBlob, TBoolean, TDate, TInet, TInt, TSmallInt, TText, TTime, TTimestamp, TTimeUUID, TTinyInt, TUUID,
	}
	otherTypes = []*Type{TDecimal, TDouble, TFloat, TVarint}
)

// keyType draws a type that is allowed in a clustering key.
func keyType() *rapid.Generator[*Type] { return rapid.SampledFrom(keyTypes) }

// anyType draws a type.
func anyType(depth int) *rapid.Generator[*Type] {
	return rapid.Custom(func(t *rapid.T) *Type {
		all := slices.Concat(keyTypes, otherTypes)
		n := len(all)
		if depth > 0 {
			n += 4
		}
		i := rapid.IntRange(0, n-1).Draw(t, "type")
		if i < len(all) {
			return all[i]
		}
		sub := func(label string) *Type { return anyType(depth-1).Draw(t, label).Freeze() }
		switch i - len(all) {
		case 0:
			return NewList(sub("elem")).Freeze()
		case 1:
			return NewSet(keyType().Draw(t, "elem")).Freeze()
		case 2:
			return NewMap(keyType().Draw(t, "key"), sub("value")).Freeze()
		}
		return NewTuple(sub("a"), sub("b"))
	})
}

// drawValue draws a valid value of ty. Few different parts are drawn, so that
// equal ones and prefixes come up.
func drawValue(ty *Type) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if !ty.IsCollection() && rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
			return []byte{}
		}
		switch ty.Kind {
		case ASCII, Varchar:
			return []byte(rapid.StringMatching(`[\x00\x01a\x7f]{0,4}`).Draw(t, "text"))
		case Blob:
			return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 0x7f, 0x80, 0xfe, 0xff}), 0, 4).Draw(t, "blob")
		case Boolean:
			return []byte{rapid.SampledFrom([]byte{0, 1, 2}).Draw(t, "bool")}
		case Float:
			return EncodeFloat(rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{
				0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
			})).Draw(t, "float"))
		case Double:
			return EncodeDouble(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{
				0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1),
			})).Draw(t, "double"))
		case Varint:
			return padVarint(t, EncodeVarint(anyBig(t)))
		case Decimal:
			scale := rapid.OneOf(rapid.Int32Range(-3, 3), rapid.Int32Range(-3, 3), rapid.Int32()).Draw(t, "scale")
			return EncodeDecimal(anyBig(t), scale)
		case Inet:
			n := rapid.SampledFrom([]int{4, 16}).Draw(t, "n")
			return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "inet")
		case TimeUUID, UUID:
			// Mostly alike, so that every part gets to decide.
			v := make([]byte, 16)
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				v[rapid.IntRange(0, 15).Draw(t, "at")] = rapid.SampledFrom([]byte{1, 0x7f, 0x80, 0xff}).Draw(t, "byte")
			}
			if ty.Kind == TimeUUID || rapid.Bool().Draw(t, "v1") {
				v[6] = v[6]&0x0f | 0x10
			}
			return v
		case List:
			return BuildCollection(rapid.SliceOfN(drawValue(ty.Elem), 0, 3).Draw(t, "list")...)
		case Set:
			return Normalize(ty, BuildCollection(rapid.SliceOfN(drawValue(ty.Elem), 0, 3).Draw(t, "set")...))
		case Map:
			keys := rapid.SliceOfN(drawValue(ty.Key), 0, 3).Draw(t, "keys")
			return Normalize(ty, BuildMap(keys, rapid.SliceOfN(drawValue(ty.Elem), len(keys), len(keys)).Draw(t, "values")))
		case Tuple:
			var parts [][]byte
			for i := range rapid.IntRange(0, len(ty.Fields)).Draw(t, "components") {
				var c []byte
				if rapid.Bool().Draw(t, "null") {
					c = drawValue(ty.Fields[i]).Draw(t, "component")
				}
				parts = append(parts, c)
			}
			return BuildTuple(parts...)
		}
		n := ty.FixedSize()
		return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff}), n, n).Draw(t, "bytes")
	})
}

func anyBig(t *rapid.T) *big.Int {
	n := big.NewInt(rapid.OneOf(rapid.Int64Range(-300, 300), rapid.Int64()).Draw(t, "n"))
	if rapid.IntRange(0, 4).Draw(t, "wide") == 0 {
		n.Mul(n, big.NewInt(math.MaxInt64))
	}
	return n
}

// padVarint repeats the sign in front, which changes the bytes but not the number.
func padVarint(t *rapid.T, v []byte) []byte {
	if rapid.IntRange(0, 3).Draw(t, "pad") > 0 {
		return v
	}
	sign := byte(0)
	if v[0]&0x80 != 0 {
		sign = 0xff
	}
	return append([]byte{sign, sign}, v...)
}
