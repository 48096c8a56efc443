package store

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestPartitionKey_RoundTripsInOrder(t *testing.T) {
	t.Parallel()
	genBytes := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.SliceOf(rapid.SampledFrom([]byte{0, 1, 0xFE, 0xFF})))
	rapid.Check(t, func(t *rapid.T) {
		a, b := genBytes.Draw(t, "a"), genBytes.Draw(t, "b")
		ta, tb := rapid.Int64().Draw(t, "token a"), rapid.Int64().Draw(t, "token b")
		if rapid.Bool().Draw(t, "one token") {
			tb = ta
		}
		ka, kb := appendPartition(nil, 3, ta, a), appendPartition(nil, 3, tb, b)
		token, key, n, err := splitPartition(append(bytes.Clone(ka), kindRow, 1, 2, 3), nil)
		if err != nil || token != ta || !bytes.Equal(key, a) || n != len(ka) {
			t.Fatalf("splitPartition() = %d %x %d %v, want %d %x %d", token, key, n, err, ta, a, len(ka))
		}
		want := bytes.Compare(a, b)
		if ta < tb {
			want = -1
		} else if ta > tb {
			want = 1
		}
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("order of %x and %x = %d, want %d", ka, kb, got, want)
		}
		if want != 0 && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)) {
			t.Fatalf("%x and %x: one is a prefix of the other", ka, kb)
		}
	})
}

// Reading and merging never panics for any record; the encoding of a merged record
// decodes to the same.
func FuzzRecord(f *testing.F) {
	var e encoder
	var d delta
	row := Row{
		Clustering: ck(1, 2), Marker: ttl(5, "", 3, 9), Deleted: deletion(1),
		Columns: []ColumnData{columnData(1, live(5, "abc")), columnData(2, dead(7)), columnData(3, ttl(5, "x", 3, 9)), columnData(4, ttl(5, "x", 4, 10)), {
			ID: 6, Deleted: deletion(4), Elements: []Element{element(1, live(5, "")), element(2, dead(6))},
		}},
	}
	e.clustering = d.setRow(&row, row.Clustering, 77, e.clustering)
	f.Add(d.appendTo(nil), d.appendTo(nil))
	p := partitionRecord{deleted: tomb{5, 6}, segments: []segment{{wholePartition(), tomb{7, 8}}}}
	f.Add(p.appendTo(nil), p.appendTo(nil))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		dec := decoder{columns: columnInfos(testTable(1)), now: 1}
		_, _ = dec.live(a, never)
		var p partitionRecord
		p.reset()
		p.add(a)
		if len(a) == 0 {
			return
		}
		m, err := startMerge(nil, a)
		if err == nil {
			err = m.MergeOlder(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		merged, closer, err := m.Finish(true)
		defer closer.Close()
		if err != nil {
			return
		}
		again, _ := startMerge(nil, merged)
		_ = again.MergeOlder(merged)
		twice, closer, err := again.Finish(true)
		defer closer.Close()
		if err != nil || !bytes.Equal(twice, merged) {
			t.Errorf("merging %x with itself: %x, %v", merged, twice, err)
		}
	})
}
