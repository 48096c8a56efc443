package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// The JSON forms of rules. Durations are texts such as "1.5s".
type (
	ruleJSON struct {
		Name        string     `json:"name,omitempty"`
		Match       matchJSON  `json:"match"`
		Skip        int        `json:"skip,omitempty"`
		Count       int        `json:"count,omitempty"`
		Probability float64    `json:"probability,omitempty"`
		Effect      effectJSON `json:"effect"`
	}
	matchJSON struct {
		Keyspace      string      `json:"keyspace,omitempty"`
		Table         string      `json:"table,omitempty"`
		Kinds         []kindJSON  `json:"kinds,omitempty"`
		Consistencies []levelJSON `json:"consistencies,omitempty"`
	}
	effectJSON struct {
		Freeze     bool            `json:"freeze,omitempty"`
		Generation *generationJSON `json:"generation,omitempty"`
		Split      *resizeJSON     `json:"split,omitempty"`
		Merge      *resizeJSON     `json:"merge,omitempty"`
		Delay      duration        `json:"delay,omitempty"`
		Error      *failureJSON    `json:"error,omitempty"`
		Disconnect bool            `json:"disconnect,omitempty"`
		Fate       fateJSON        `json:"fate,omitempty"`
		Later      []duration      `json:"later,omitempty"`
		// Computed is set for scenarios whose responses depend on the operation.
		Computed bool `json:"computed,omitempty"`
	}
	failureJSON struct {
		Code        codeJSON   `json:"code"`
		Message     string     `json:"message,omitempty"`
		WriteType   string     `json:"write_type,omitempty"`
		Consistency *levelJSON `json:"consistency,omitempty"`
		Received    int32      `json:"received,omitempty"`
		BlockFor    int32      `json:"block_for,omitempty"`
		NumFailures int32      `json:"failures,omitempty"`
		DataPresent bool       `json:"data_present,omitempty"`
	}
	generationJSON struct {
		In          duration `json:"in,omitempty"`
		ExtraTokens int      `json:"extra_tokens,omitempty"`
	}
	resizeJSON struct {
		Keyspace string   `json:"keyspace"`
		Table    string   `json:"table"`
		In       duration `json:"in,omitempty"`
	}
	statusJSON struct {
		ID int `json:"id"`
		ruleJSON
		Matched int  `json:"matched"`
		Hits    int  `json:"hits"`
		Spent   bool `json:"spent"`
	}
)

type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as \"1.5s\"", b)
	}
	*d = duration(v)
	return nil
}

// names maps a set of constants to their names and back.
type names[T comparable] struct {
	what  string
	names map[T]string
}

func (n names[T]) text(v T) ([]byte, error) {
	if s, ok := n.names[v]; ok {
		return []byte(s), nil
	}
	return []byte(fmt.Sprint(v)), nil
}

func (n names[T]) parse(b []byte) (v T, err error) {
	for k, name := range n.names {
		if strings.EqualFold(name, string(b)) {
			return k, nil
		}
	}
	var known []string
	for _, name := range n.names {
		known = append(known, name)
	}
	slices.Sort(known)
	return v, fmt.Errorf("%s %q is unknown: it must be one of %s", n.what, b, strings.Join(known, ", "))
}

var (
	kinds = names[engine.OpKind]{"kind", map[engine.OpKind]string{
		engine.OpRead: "read", engine.OpSerialRead: "serial_read", engine.OpWrite: "write",
		engine.OpUnloggedBatch: "unlogged_batch", engine.OpLoggedBatch: "logged_batch", engine.OpCAS: "cas",
	}}
	fates = names[engine.Fate]{"fate", map[engine.Fate]string{
		engine.FateNormal: "normal", engine.FateApply: "apply", engine.FateLater: "later", engine.FateDecided: "decided",
	}}
	levels = names[engine.Consistency]{"consistency", levelNames}
	codes  = names[cqlerr.Code]{"error code", codeNames}
)

type (
	kindJSON  engine.OpKind
	fateJSON  engine.Fate
	levelJSON engine.Consistency
	codeJSON  cqlerr.Code
)

func (k kindJSON) MarshalText() ([]byte, error)  { return kinds.text(engine.OpKind(k)) }
func (f fateJSON) MarshalText() ([]byte, error)  { return fates.text(engine.Fate(f)) }
func (l levelJSON) MarshalText() ([]byte, error) { return levels.text(engine.Consistency(l)) }
func (c codeJSON) MarshalText() ([]byte, error)  { return codes.text(cqlerr.Code(c)) }

func (k *kindJSON) UnmarshalText(b []byte) error {
	v, err := kinds.parse(b)
	*k = kindJSON(v)
	return err
}

func (f *fateJSON) UnmarshalText(b []byte) error {
	v, err := fates.parse(b)
	*f = fateJSON(v)
	return err
}

func (l *levelJSON) UnmarshalText(b []byte) error {
	v, err := levels.parse(b)
	*l = levelJSON(v)
	return err
}

// UnmarshalText takes a name or a number such as 0x1100.
func (c *codeJSON) UnmarshalText(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 0, 32); err == nil {
		*c = codeJSON(n)
		return nil
	}
	v, err := codes.parse(b)
	*c = codeJSON(v)
	return err
}

// rule returns the Rule that the JSON describes.
func (j *ruleJSON) rule() (Rule, error) {
	r := Rule{
		Name: j.Name, Skip: j.Skip, Count: j.Count, Probability: j.Probability,
		Match: Match{Keyspace: j.Match.Keyspace, Table: j.Match.Table},
		Effect: Effect{
			Freeze: j.Effect.Freeze, Delay: time.Duration(j.Effect.Delay), Disconnect: j.Effect.Disconnect,
			Fate: engine.Fate(j.Effect.Fate), Later: durations(j.Effect.Later),
		},
	}
	for _, k := range j.Match.Kinds {
		r.Match.Kinds = append(r.Match.Kinds, engine.OpKind(k))
	}
	for _, l := range j.Match.Consistencies {
		r.Match.Consistencies = append(r.Match.Consistencies, engine.Consistency(l))
	}
	if g := j.Effect.Generation; g != nil {
		r.Effect.Generation = &Generation{In: time.Duration(g.In), ExtraTokens: g.ExtraTokens}
	}
	if j.Effect.Split != nil && j.Effect.Merge != nil {
		return r, fmt.Errorf("an effect can split or merge tablets, not both")
	}
	for resize, merge := range map[*resizeJSON]bool{j.Effect.Split: false, j.Effect.Merge: true} {
		if resize != nil {
			r.Effect.Resize = &Resize{Keyspace: resize.Keyspace, Table: resize.Table, In: time.Duration(resize.In), Merge: merge}
		}
	}
	if f := j.Effect.Error; f != nil {
		r.Effect.Failure = &Failure{
			Code: cqlerr.Code(f.Code), Message: f.Message, WriteType: strings.ToUpper(f.WriteType),
			Received: f.Received, BlockFor: f.BlockFor, NumFailures: f.NumFailures, DataPresent: f.DataPresent,
		}
		if f.Consistency != nil {
			level := engine.Consistency(*f.Consistency)
			r.Effect.Failure.Consistency = &level
		}
	}
	if j.Effect.Computed {
		return r, fmt.Errorf("computed effects are made by scenarios only")
	}
	return r, nil
}

// newStatusJSON returns the JSON of an existing rule.
func newStatusJSON(s Status) statusJSON {
	e := s.Effect
	j := statusJSON{
		ID: s.ID, Matched: s.Matched, Hits: s.Hits, Spent: s.Spent,
		ruleJSON: ruleJSON{
			Name: s.Name, Skip: s.Skip, Count: s.Count, Probability: s.Probability,
			Match: matchJSON{Keyspace: s.Match.Keyspace, Table: s.Match.Table},
			Effect: effectJSON{
				Freeze: e.Freeze, Delay: duration(e.Delay), Disconnect: e.Disconnect,
				Fate: fateJSON(e.Fate), Computed: e.Decide != nil,
			},
		},
	}
	for _, k := range s.Match.Kinds {
		j.Match.Kinds = append(j.Match.Kinds, kindJSON(k))
	}
	for _, l := range s.Match.Consistencies {
		j.Match.Consistencies = append(j.Match.Consistencies, levelJSON(l))
	}
	for _, d := range e.Later {
		j.Effect.Later = append(j.Effect.Later, duration(d))
	}
	if e.Generation != nil {
		j.Effect.Generation = &generationJSON{In: duration(e.Generation.In), ExtraTokens: e.Generation.ExtraTokens}
	}
	if r := e.Resize; r != nil {
		resize := &resizeJSON{Keyspace: r.Keyspace, Table: r.Table, In: duration(r.In)}
		if r.Merge {
			j.Effect.Merge = resize
		} else {
			j.Effect.Split = resize
		}
	}
	if f := e.Failure; f != nil {
		j.Effect.Error = &failureJSON{
			Code: codeJSON(f.Code), Message: f.Message, WriteType: f.WriteType,
			Received: f.Received, BlockFor: f.BlockFor, NumFailures: f.NumFailures, DataPresent: f.DataPresent,
		}
		if f.Consistency != nil {
			level := levelJSON(*f.Consistency)
			j.Effect.Error.Consistency = &level
		}
	}
	return j
}

func durations(list []duration) []time.Duration {
	var out []time.Duration
	for _, d := range list {
		out = append(out, time.Duration(d))
	}
	return out
}
