package catalog

import (
	"bytes"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func names(cols []*Column) (out []string) {
	for _, c := range cols {
		out = append(out, c.Name)
	}
	return out
}

func example() *Table {
	t := NewTable("ks", "t")
	t.Add(Column{Name: "p", Type: cqltype.TInt, Kind: PartitionKey})
	t.Add(Column{Name: "q", Type: cqltype.TText, Kind: PartitionKey})
	t.Add(Column{Name: "c", Type: cqltype.TInt, Kind: Clustering, Desc: true})
	for _, n := range []string{"z", "a", "m"} {
		t.Add(Column{Name: n, Type: cqltype.TInt, Kind: Regular})
	}
	t.Add(Column{Name: "s", Type: cqltype.TInt, Kind: Static})
	return t
}

func TestTable_Columns(t *testing.T) {
	t.Parallel()
	table := example()
	if got, want := names(table.Columns()), []string{"p", "q", "c", "s", "a", "m", "z"}; !slices.Equal(got, want) {
		t.Errorf("Columns() = %v, want %v", got, want)
	}
	if p := table.ByName["q"].Position; p != 1 {
		t.Errorf("q has position %d, want 1", p)
	}
	if p := table.ByName["a"].Position; p != -1 {
		t.Errorf("a has position %d, want -1", p)
	}
}

func TestTable_CloneIsApart(t *testing.T) {
	t.Parallel()
	table := example()
	clone := table.Clone()
	clone.Remove("m")
	added := clone.Add(Column{Name: "m", Type: cqltype.TText, Kind: Regular})
	clone.ByName["a"].Type = cqltype.TBlob
	clone.Options.Compaction["class"] = "other"
	if table.ByName["m"].Type != cqltype.TInt || table.ByName["a"].Type != cqltype.TInt || table.Options.Compaction["class"] == "other" {
		t.Error("changing the clone changed the table")
	}
	if added.ID != table.NextColumnID || clone.ByID[added.ID] != added || clone.ByID[table.ByName["m"].ID] != nil {
		t.Errorf("the new column has the number %d", added.ID)
	}
}

func TestTable_Keys(t *testing.T) {
	t.Parallel()
	table := example()
	for _, values := range [][][]byte{{{1}, {2, 3}}, {{}, {}}, {{0, 0}, bytes.Repeat([]byte{7}, 300)}} {
		key, err := table.EncodeKey(values)
		if err != nil {
			t.Fatal(err)
		}
		back, err := table.DecodeKey(key, nil)
		if err != nil || !slices.EqualFunc(back, values, bytes.Equal) {
			t.Errorf("%v came back as %v, %v", values, back, err)
		}
		for cut := range key {
			if _, err := table.DecodeKey(key[:cut], nil); err == nil {
				t.Errorf("DecodeKey(%x) succeeded", key[:cut])
			}
		}
		if _, err := table.DecodeKey(append(key, 0), nil); err == nil {
			t.Error("DecodeKey with a byte left over succeeded")
		}
	}
	if _, err := table.EncodeKey([][]byte{make([]byte, 1<<16), {}}); err == nil {
		t.Error("EncodeKey of 65536 bytes succeeded")
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Version{"5.1": {5, 1}, "2025.4": {2025, 4}, "6.2.3": {6, 2}} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "x.y", "-1.2", "5."} {
		if v, err := ParseVersion(text); err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", text, v)
		}
	}
	for _, tt := range []struct {
		v             Version
		tablets, logs bool
	}{{Version{5, 1}, false, false}, {Version{6, 0}, true, false}, {Version{2025, 3}, true, false}, {Version{2025, 4}, true, true}, {Version{2026, 1}, true, true}} {
		if tt.v.HasTablets() != tt.tablets || tt.v.HasCDCOnTablets() != tt.logs {
			t.Errorf("%v: tablets %v, CDC on them %v", tt.v, tt.v.HasTablets(), tt.v.HasCDCOnTablets())
		}
	}
}
