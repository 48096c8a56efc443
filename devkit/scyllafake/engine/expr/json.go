package expr

import (
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// toJSON returns toJson() of a value of type t.
func toJSON(t *cqltype.Type) *function {
	return &function{
		name: "tojson", args: types(t), ret: cqltype.TText, nulls: true,
		call: func(_ *EvalCtx, args [][]byte) ([]byte, error) { return t.AppendJSON(nil, args[0]) },
	}
}

// fromJSON returns fromJson() as a value of type t.
func fromJSON(t *cqltype.Type) *function {
	return &function{
		name: "fromjson", args: types(cqltype.TText), ret: t,
		call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
			j, err := cqltype.ParseJSON(string(args[0]))
			if err != nil {
				return nil, err
			}
			return t.FromJSON(j)
		},
	}
}

// AppendJSONName appends a column's name as a key of SELECT JSON: with its double
// quotes if it needs them in CQL because of upper case.
func AppendJSONName(dst []byte, name string) []byte {
	if strings.ToLower(name) != name {
		name = `"` + name + `"`
	}
	return cqltype.AppendJSONString(dst, name)
}

// JsonColumns parses the object of INSERT JSON: the value of each column in it. Names
// fold to lower case unless they are quoted themselves.
func JsonColumns(t *catalog.Table, text string) (map[*catalog.Column][]byte, error) {
	j, err := cqltype.ParseJSON(text)
	if err != nil {
		return nil, err
	}
	if j.Kind != cqltype.JSONObject {
		return nil, cqlerr.Invalidf("Invalid JSON: %s is not an object", text)
	}
	out := make(map[*catalog.Column][]byte, len(j.Keys))
	for i, key := range j.Keys {
		name := strings.ToLower(key)
		if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
			name = key[1 : len(key)-1]
		}
		c := t.ByName[name]
		if c == nil {
			return nil, cqlerr.Invalidf("JSON values map contains unrecognized column: %s", key)
		}
		if out[c], err = c.Type.FromJSON(j.List[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
