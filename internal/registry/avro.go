package registry

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The decoder of Avro's binary encoding is small, and needs no library: those in Go build values
// by reflection (1.4 MB more code), and do not bound schemas that contain themselves or lists of
// values without bytes.

// avroType is a type of a schema.
type avroType struct {
	kind    string // of the type, or record, enum, array, map, fixed, union
	logical string
	scale   int
	size    int        // of fixed
	symbols []string   // of enum
	names   []string   // of the fields of a record
	types   []avroType // of the fields of a record, the members of a union, or the items
	named   *avroType  // a type that is defined elsewhere
}

// avroParser contains the named types.
type avroParser struct{ known map[string]*avroType }

func compileAvro(text string, refs []reference) (func([]byte) (json.RawMessage, error), error) {
	p := avroParser{make(map[string]*avroType)}
	var t avroType
	for _, ref := range append(refs, reference{}) {
		if ref.Schema.Schema == "" {
			ref.Schema.Schema = text
		}
		var v any
		if err := json.Unmarshal([]byte(ref.Schema.Schema), &v); err != nil {
			return nil, fmt.Errorf("the schema is not JSON: %w", err)
		}
		var err error
		if t, err = p.parse(v, "", 0); err != nil {
			return nil, err
		}
	}
	return func(b []byte) (json.RawMessage, error) {
		d := avroDecoder{in: b, out: make([]byte, 0, 2*len(b)+64)}
		if err := d.value(&t, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(d.path, "/"), err)
		}
		if len(d.in) > 0 {
			return nil, fmt.Errorf("%d bytes are left after the value", len(d.in))
		}
		return d.out, nil
	}, nil
}

func (p *avroParser) parse(v any, space string, depth int) (t avroType, err error) {
	if depth > maxDepth {
		return t, errors.New("the types are nested too deeply")
	}
	switch v := v.(type) {
	case string:
		return p.simple(v, space)
	case []any:
		t.kind = "union"
		for _, member := range v {
			one, err := p.parse(member, space, depth+1)
			if err != nil {
				return t, err
			}
			t.types = append(t.types, one)
		}
		return t, nil
	case map[string]any:
		return p.complex(v, space, depth)
	}
	return t, fmt.Errorf("%v is no type", v)
}

// simple returns a primitive or named type.
func (p *avroParser) simple(name, space string) (avroType, error) {
	switch name {
	case "null", "boolean", "int", "long", "float", "double", "bytes", "string":
		return avroType{kind: name}, nil
	}
	if known := p.known[fullName(name, space)]; known != nil {
		return avroType{named: known}, nil
	}
	if known := p.known[name]; known != nil {
		return avroType{named: known}, nil
	}
	return avroType{}, fmt.Errorf("the type %.100q is not defined", name)
}

func fullName(name, space string) string {
	if space == "" || strings.Contains(name, ".") {
		return name
	}
	return space + "." + name
}

func (p *avroParser) complex(m map[string]any, space string, depth int) (t avroType, err error) {
	kind, isText := m["type"].(string)
	if !isText {
		return p.parse(m["type"], space, depth+1)
	}
	t.logical, _ = m["logicalType"].(string)
	number := func(key string) int {
		f, _ := m[key].(float64)
		return int(max(0, min(f, 1<<20)))
	}
	t.kind, t.scale, t.size = kind, number("scale"), number("size")
	switch kind {
	case "array", "map":
		item, err := p.parse(m[map[string]string{"array": "items", "map": "values"}[kind]], space, depth+1)
		t.types = []avroType{item}
		return t, err
	case "record", "error", "enum", "fixed":
	default:
		logical, scale := t.logical, t.scale
		t, err = p.simple(kind, space)
		t.logical, t.scale = logical, scale
		return t, err
	}
	name, _ := m["name"].(string)
	if own, ok := m["namespace"].(string); ok {
		space = own
	}
	name = fullName(name, space)
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		space = name[:i]
	}
	self := &avroType{}
	p.known[name] = self
	fields, _ := m["fields"].([]any)
	for _, f := range fields {
		field, _ := f.(map[string]any)
		one, err := p.parse(field["type"], space, depth+1)
		if err != nil {
			return t, fmt.Errorf("%s.%v: %w", name, field["name"], err)
		}
		text, _ := field["name"].(string)
		t.names, t.types = append(t.names, text), append(t.types, one)
	}
	symbols, _ := m["symbols"].([]any)
	for _, s := range symbols {
		text, _ := s.(string)
		t.symbols = append(t.symbols, text)
	}
	*self = t
	return avroType{named: self}, nil
}

// avroDecoder appends the JSON of a value.
type avroDecoder struct {
	in, out []byte
	steps   int
	path    string // of the value with an error, as a JSON pointer
}

// within returns the error of a member, and adds its name to the path.
func (d *avroDecoder) within(name string, err error) error {
	d.path = "/" + name + d.path
	return err
}

var errShort = errors.New("the payload ends too early")

func (d *avroDecoder) value(t *avroType, depth int) error {
	if t.named != nil {
		t = t.named
	}
	if depth > maxDepth {
		return fmt.Errorf("it is nested in more than %d levels", maxDepth)
	}
	if d.steps++; len(d.out) > maxJSON || d.steps > maxJSON {
		return errTooLarge
	}
	switch t.kind {
	case "null":
		d.out = append(d.out, "null"...)
	case "boolean":
		b, err := d.take(1)
		if err != nil {
			return err
		}
		d.out = strconv.AppendBool(d.out, b[0] != 0)
	case "int", "long":
		n, err := d.long()
		if err != nil {
			return err
		}
		if t.kind == "int" && n != int64(int32(n)) {
			return fmt.Errorf("%d is not an int", n)
		}
		d.number(t, n)
	case "float":
		b, err := d.take(4)
		if err != nil {
			return err
		}
		d.float(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	case "double":
		b, err := d.take(8)
		if err != nil {
			return err
		}
		d.float(math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	case "bytes", "string", "fixed":
		n := int64(t.size)
		var err error
		if t.kind != "fixed" {
			if n, err = d.long(); err != nil {
				return err
			}
		}
		b, err := d.take(n)
		if err != nil {
			return err
		}
		d.text(t, b)
	case "enum":
		n, err := d.long()
		if err != nil {
			return err
		}
		if n < 0 || n >= int64(len(t.symbols)) {
			return fmt.Errorf("the enum has no symbol %d", n)
		}
		d.quote(t.symbols[n])
	case "union":
		n, err := d.long()
		if err != nil {
			return err
		}
		if n < 0 || n >= int64(len(t.types)) {
			return fmt.Errorf("the union has no type %d", n)
		}
		return d.value(&t.types[n], depth+1)
	case "array", "map":
		return d.blocks(t, depth)
	default: // record
		d.out = append(d.out, '{')
		for i := range t.types {
			d.member(i == 0, t.names[i])
			if err := d.value(&t.types[i], depth+1); err != nil {
				return d.within(t.names[i], err)
			}
		}
		d.out = append(d.out, '}')
	}
	return nil
}

// blocks decodes the items of an array or a map.
func (d *avroDecoder) blocks(t *avroType, depth int) error {
	open, end := byte('['), byte(']')
	if t.kind == "map" {
		open, end = '{', '}'
	}
	d.out = append(d.out, open)
	for at := 0; ; {
		n, err := d.long()
		if err != nil {
			return err
		}
		if n < 0 { // followed by the size of the block
			if _, err := d.long(); err != nil {
				return err
			}
			n = -n
		}
		if n == 0 {
			d.out = append(d.out, end)
			return nil
		}
		for ; n != 0; n-- {
			key := ""
			if t.kind == "map" {
				size, err := d.long()
				if err != nil {
					return err
				}
				name, err := d.take(size)
				if err != nil {
					return err
				}
				key = valid(name)
				d.member(at == 0, key)
			} else if at > 0 {
				d.out = append(d.out, ',')
			}
			if err := d.value(&t.types[0], depth+1); err != nil {
				return d.within(cmp.Or(key, strconv.Itoa(at)), err)
			}
			at++
		}
	}
}

func (d *avroDecoder) member(first bool, name string) {
	if !first {
		d.out = append(d.out, ',')
	}
	d.quote(name)
	d.out = append(d.out, ':')
}

func (d *avroDecoder) quote(s string) { d.out, _ = jsontext.AppendQuote(d.out, s) }

func (d *avroDecoder) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(d.in)) {
		return nil, errShort
	}
	b := d.in[:n]
	d.in = d.in[n:]
	return b, nil
}

func (d *avroDecoder) long() (int64, error) {
	n, size := binary.Varint(d.in)
	if size <= 0 {
		return 0, errShort
	}
	d.in = d.in[size:]
	return n, nil
}

func (d *avroDecoder) float(f float64, bits int) {
	if math.IsNaN(f) || math.IsInf(f, 0) { // JSON has no such numbers
		d.quote(strconv.FormatFloat(f, 'g', -1, bits))
		return
	}
	d.out = strconv.AppendFloat(d.out, f, 'g', -1, bits)
}

// number appends an integer, times as RFC 3339; local ones have no zone.
func (d *avroDecoder) number(t *avroType, n int64) {
	layout, at := time.RFC3339Nano, time.Time{}
	logical, local := strings.CutPrefix(t.logical, "local-")
	if local {
		layout = "2006-01-02T15:04:05.999999999"
	}
	switch logical {
	case "date":
		layout, at = time.DateOnly, time.Unix(0, 0).UTC().AddDate(0, 0, int(max(-1<<31, min(n, 1<<31-1))))
	case "timestamp-millis":
		at = time.UnixMilli(n).UTC()
	case "timestamp-micros":
		at = time.UnixMicro(n).UTC()
	case "timestamp-nanos":
		at = time.Unix(0, n).UTC()
	}
	if y := at.Year(); at.IsZero() || y < 1 || y > 9999 {
		d.out = strconv.AppendInt(d.out, n, 10)
		return
	}
	d.quote(at.Format(layout))
}

// maxDecimal bounds the digits of a decimal: their conversion takes quadratic time.
const maxDecimal = 256

// text appends bytes: a decimal as its digits, others with a character for each byte, as the JSON
// encoding of Avro does.
func (d *avroDecoder) text(t *avroType, b []byte) {
	switch {
	case t.kind == "string":
		d.quote(valid(b))
	case t.logical == "decimal" && len(b) <= maxDecimal && t.scale <= maxDecimal:
		n := new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
		}
		d.quote(decimal(n, t.scale))
	default:
		runes := make([]rune, len(b))
		for i, c := range b {
			runes[i] = rune(c)
		}
		d.quote(string(runes))
	}
}

// decimal returns n with scale digits after the point.
func decimal(n *big.Int, scale int) string {
	digits := new(big.Int).Abs(n).String()
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale-len(digits)+1) + digits
	}
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if n.Sign() < 0 {
		return "-" + digits
	}
	return digits
}
