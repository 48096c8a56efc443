package expr

import (
	"math"
	"math/big"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Aggregate is an aggregate function in a select clause and its state for the current
// group. A plan's aggregates are copied for each execution; slot is the index in the
// copy.
type Aggregate struct {
	kind string // count, min, max, sum, avg
	arg  *Selected
	Slot int
}

// Accumulator is the state of an aggregate in one execution.
type Accumulator struct {
	count int64
	best  []byte
	sum   *big.Int // integers and unscaled decimals
	scale int32
	float float64
}

// aggregateSelector returns the result of an aggregate; it reads the accumulators of
// the execution, not the row.
type aggregateSelector struct{ agg *Aggregate }

// Value implements Selector.
func (s aggregateSelector) Value(x *EvalCtx, _ *RowView) ([]byte, error) {
	return s.agg.result(&x.Accs[s.agg.Slot])
}

func (p *Compiler) aggregateSelector(name string, t cql.FuncCall, aggs *[]*Aggregate) (Selected, error) {
	if aggs == nil {
		return Selected{}, cqlerr.Invalidf("aggregate functions cannot be used as arguments of aggregate functions")
	}
	agg := &Aggregate{kind: name, Slot: len(*aggs)}
	out := Selected{Selector: aggregateSelector{agg}, Name: "count", Type: cqltype.TBigInt, Aggregates: true}
	if len(t.Args) == 0 && name == "count" {
		*aggs = append(*aggs, agg)
		return out, nil
	}
	if len(t.Args) != 1 {
		return Selected{}, cqlerr.Invalidf("Invalid number of arguments in call to function system.%s: 1 required but %d provided", name, len(t.Args))
	}
	arg, err := p.Selector(t.Args[0], nil)
	if err != nil {
		return Selected{}, err
	}
	agg.arg = &arg
	out.Name = "system." + name + "(" + arg.Name + ")"
	switch name {
	case "min", "max":
		out.Type = arg.Type
	case "sum", "avg":
		if !isNumber(arg.Type) {
			return Selected{}, cqlerr.Invalidf("Invalid call to function system.%s, none of its type signatures match (known type signatures: )", name)
		}
		out.Type = arg.Type
		if arg.Type.Kind == cqltype.Counter {
			out.Type = cqltype.TBigInt
		}
	}
	*aggs = append(*aggs, agg)
	return out, nil
}

func isNumber(t *cqltype.Type) bool {
	switch t.Kind {
	case cqltype.TinyInt, cqltype.SmallInt, cqltype.Int, cqltype.BigInt, cqltype.Counter, cqltype.Varint,
		cqltype.Float, cqltype.Double, cqltype.Decimal:
		return true
	}
	return false
}

// Add adds a row to the group.
func (a *Aggregate) Add(x *EvalCtx, acc *Accumulator, v *RowView) error {
	if a.arg == nil {
		acc.count++
		return nil
	}
	b, err := a.arg.Value(x, v)
	if err != nil || b == nil {
		return err
	}
	switch a.kind {
	case "min":
		if acc.best == nil || a.arg.Type.Compare(b, acc.best) < 0 {
			acc.best = append([]byte{}, b...)
		}
	case "max":
		if acc.best == nil || a.arg.Type.Compare(b, acc.best) > 0 {
			acc.best = append([]byte{}, b...)
		}
	case "sum", "avg":
		if len(b) == 0 {
			return nil
		}
		if err := acc.addNumber(a.arg.Type, b); err != nil {
			return err
		}
	}
	acc.count++
	return nil
}

func (acc *Accumulator) addNumber(t *cqltype.Type, b []byte) error {
	switch t.Kind {
	case cqltype.Float:
		acc.float += float64(decodeFloat(b))
		return nil
	case cqltype.Double:
		acc.float += decodeDouble(b)
		return nil
	}
	if acc.sum == nil {
		acc.sum = new(big.Int)
	}
	switch t.Kind {
	case cqltype.Varint:
		acc.sum.Add(acc.sum, cqltype.DecodeVarint(b))
	case cqltype.Decimal:
		unscaled, scale := cqltype.DecodeDecimal(b)
		factor, err := pow10(int64(scale) - int64(acc.scale))
		if err != nil {
			return err
		}
		if scale > acc.scale {
			acc.sum.Mul(acc.sum, factor)
			acc.scale = scale
		} else {
			unscaled.Mul(unscaled, factor)
		}
		acc.sum.Add(acc.sum, unscaled)
	default:
		n, _ := t.DecodeInt(b)
		acc.sum.Add(acc.sum, big.NewInt(n))
	}
	return nil
}

// maxScale limits the exponents that arithmetic on decimals expands.
const maxScale = 10000

// pow10 returns 10 to the power of |n|.
func pow10(n int64) (*big.Int, error) {
	n = max(n, -n)
	if n > maxScale {
		return nil, cqlerr.Unsupported("arithmetic on decimals with exponents that far apart")
	}
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil), nil
}

// result returns the aggregate of the group; sum and avg of no rows are 0.
func (a *Aggregate) result(acc *Accumulator) ([]byte, error) {
	switch a.kind {
	case "count":
		return cqltype.EncodeInt64(acc.count), nil
	case "min", "max":
		return acc.best, nil
	}
	avg := a.kind == "avg" && acc.count > 0
	switch t := a.arg.Type; t.Kind {
	case cqltype.Float, cqltype.Double:
		f := acc.float
		if avg {
			f /= float64(acc.count)
		}
		if t.Kind == cqltype.Float {
			return cqltype.EncodeFloat(float32(f)), nil
		}
		return cqltype.EncodeDouble(f), nil
	}
	sum := acc.sum
	if sum == nil {
		sum = new(big.Int)
	}
	if avg {
		sum = new(big.Int).Quo(sum, big.NewInt(acc.count))
	}
	switch t := a.arg.Type; t.Kind {
	case cqltype.Varint:
		return cqltype.EncodeVarint(sum), nil
	case cqltype.Decimal:
		return cqltype.EncodeDecimal(sum, acc.scale), nil
	default:
		if sum.IsInt64() {
			if t.Kind == cqltype.Counter {
				t = cqltype.TBigInt
			}
			if b, ok := t.EncodeInt(sum.Int64()); ok {
				return b, nil
			}
		}
		return nil, cqlerr.New(cqlerr.Server, "Numeric overflow in %s", a.kind)
	}
}

func decodeFloat(b []byte) float32 { return math.Float32frombits(uint32(be(b))) }

func decodeDouble(b []byte) float64 { return math.Float64frombits(be(b)) }

func be(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}
