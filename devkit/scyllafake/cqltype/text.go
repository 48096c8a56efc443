package cqltype

import (
	"encoding/hex"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Text formats a value as ScyllaDB's CAST(… AS text) does: without quotes, times as ISO
// 8601, decimals without an exponent. Null and empty values are the empty text. v must
// be valid for t, which must not be a collection.
func (t *Type) Text(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	switch t.Kind {
	case ASCII, Varchar:
		return string(v)
	case Blob:
		return hex.EncodeToString(v)
	case Float, Double:
		return formatFloat(floatValue(v), 8*t.FixedSize())
	case Decimal:
		return decimalText(DecodeDecimal(v))
	case Timestamp:
		n, _ := t.DecodeInt(v)
		at := time.UnixMilli(n).UTC()
		if n%1000 == 0 {
			return at.Format("2006-01-02T15:04:05")
		}
		return at.Format("2006-01-02T15:04:05.000000")
	case Date:
		n, _ := t.DecodeInt(v)
		return FormatDate(uint32(n))
	case Time:
		n, _ := t.DecodeInt(v)
		return FormatTime(n)
	case UUID, TimeUUID:
		if len(v) == 16 {
			return uuid.UUID(v).String()
		}
	case Inet:
		if a, ok := netip.AddrFromSlice(v); ok {
			return a.String()
		}
	case Duration:
		return FormatDuration(DecodeDuration(v))
	}
	return t.Format(v)
}

// formatFloat returns the shortest text that parses to f, with an exponent where
// ScyllaDB's formatting library has one: below 1e-4 and from 1e16 on.
func formatFloat(f float64, bits int) string {
	if a := max(f, -f); a == 0 || a >= 1e-4 && a < 1e16 {
		return strconv.FormatFloat(f, 'f', -1, bits)
	}
	return strconv.FormatFloat(f, 'e', -1, bits)
}

// decimalText formats a decimal in full, without zeros at the end of its fraction.
func decimalText(unscaled *big.Int, scale int32) string {
	// A longer text would be megabytes of zeros.
	const widest = 1 << 16
	if unscaled.Sign() == 0 {
		return "0"
	}
	if scale > widest || scale < -widest {
		return unscaled.String() + "E" + strconv.FormatInt(-int64(scale), 10)
	}
	digits := new(big.Int).Abs(unscaled).String()
	switch {
	case scale < 0:
		digits += strings.Repeat("0", int(-scale))
	case scale > 0:
		if missing := int(scale) - len(digits) + 1; missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		point := len(digits) - int(scale)
		digits = strings.TrimRight(digits[:point]+"."+digits[point:], "0")
		digits = strings.TrimSuffix(digits, ".")
	}
	if unscaled.Sign() < 0 {
		return "-" + digits
	}
	return digits
}
