package golden

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Value is a bound value of a script.
type Value struct {
	Name  string // "" when bound by position
	Bytes []byte // nil is null
	Unset bool
}

// ParseValues parses the script syntax of bound values: "int:1, null, @name text:\"a,
// b\", list:[int:1,int:2]". The README of the recordings describes all of it.
func ParseValues(s string) ([]Value, error) {
	p := &valueParser{s: s}
	var out []Value
	for p.space(); p.s != ""; p.space() {
		if len(out) > 0 && !p.accept(",") {
			return nil, p.errorf("',' expected")
		}
		p.space()
		var v Value
		if p.accept("@") {
			name, rest, ok := strings.Cut(p.s, " ")
			if !ok {
				return nil, p.errorf("a value must follow the name")
			}
			v.Name, p.s = name, rest
		}
		var err error
		if v.Bytes, v.Unset, err = p.value(); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

type valueParser struct{ s string }

func (p *valueParser) errorf(format string, args ...any) error {
	return fmt.Errorf(format+" at %q", append(args, p.s)...)
}

func (p *valueParser) space() { p.s = strings.TrimLeft(p.s, " ") }

func (p *valueParser) accept(prefix string) bool {
	rest, ok := strings.CutPrefix(p.s, prefix)
	if ok {
		p.s = rest
	}
	return ok
}

func (p *valueParser) value() (v []byte, unset bool, err error) {
	switch {
	case p.accept("null"):
		return nil, false, nil
	case p.accept("unset"):
		return nil, true, nil
	}
	kind, rest, ok := strings.Cut(p.s, ":")
	if !ok {
		return nil, false, p.errorf("type:value expected")
	}
	p.s = rest
	if p.accept("[") {
		v, err = p.collection(kind)
	} else {
		v, err = encodeValue(kind, p.word())
	}
	return v, false, err
}

// word reads up to the next comma or bracket, or a quoted text.
func (p *valueParser) word() string {
	if strings.HasPrefix(p.s, `"`) {
		if q, err := strconv.QuotedPrefix(p.s); err == nil {
			p.s = p.s[len(q):]
			text, _ := strconv.Unquote(q)
			return text
		}
	}
	n := strings.IndexAny(p.s, ",]")
	if n < 0 {
		n = len(p.s)
	}
	w := p.s[:n]
	p.s = p.s[n:]
	return w
}

func (p *valueParser) collection(kind string) ([]byte, error) {
	var elems [][]byte
	for p.space(); !p.accept("]"); p.space() {
		if len(elems) > 0 && !p.accept(",") {
			return nil, p.errorf("',' expected")
		}
		p.space()
		v, _, err := p.value()
		if err != nil {
			return nil, err
		}
		elems = append(elems, v)
	}
	switch kind {
	case "list", "set":
		return cqltype.BuildCollection(elems...), nil
	case "tuple":
		return cqltype.BuildTuple(elems...), nil
	case "map":
		out := binary.BigEndian.AppendUint32(nil, uint32(len(elems)/2))
		for _, e := range elems {
			out = cqltype.AppendElement(out, e)
		}
		return out, nil
	}
	return nil, p.errorf("unknown collection %s", kind)
}

func encodeValue(kind, text string) ([]byte, error) {
	switch kind {
	case "raw", "blob":
		v, err := hex.DecodeString(text)
		return append([]byte{}, v...), err
	case "zeros":
		n, err := strconv.Atoi(text)
		return make([]byte, n), err
	case "time":
		n, err := strconv.ParseInt(text, 10, 64)
		return cqltype.EncodeInt64(n), err
	case "decimal":
		unscaled, scale, _ := strings.Cut(text, "/")
		n, ok := new(big.Int).SetString(unscaled, 10)
		s, err := strconv.ParseInt(scale, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("decimal %q", text)
		}
		return cqltype.EncodeDecimal(n, int32(s)), nil
	case "duration":
		var months, days int32
		var nanos int64
		if _, err := fmt.Sscanf(text, "%d/%d/%d", &months, &days, &nanos); err != nil {
			return nil, err
		}
		return appendVInt(appendVInt(appendVInt(nil, int64(months)), int64(days)), nanos), nil
	}
	t, err := cqltype.Parse(kind)
	if err != nil {
		return nil, err
	}
	return t.FromText(text)
}

// appendVInt appends a number of a duration: zig-zag, in a first byte that begins with as many
// ones as bytes follow.
func appendVInt(dst []byte, n int64) []byte {
	u := uint64(n)<<1 ^ uint64(n>>63)
	extra := min((bits.Len64(u|1)-1)/7, 8)
	b := binary.BigEndian.AppendUint64([]byte{0}, u)[8-extra:]
	b[0] |= ^byte(0xff >> extra)
	return append(dst, b...)
}
