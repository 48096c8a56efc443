package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// A data key is
//
//	spaceData | StoreID (4) | token, sign flipped (8) | partition key, escaped | kind | clustering
//
// so that bytewise order is token order, then partition, then the partition's own
// record, its static row and its rows in clustering order.
const (
	spaceMeta byte = 0x01
	spaceData byte = 0x02

	kindPartition byte = 0x10 // tombstones of the partition and of ranges of it
	kindStatic    byte = 0x20
	kindRow       byte = 0x30
	kindEnd       byte = 0x31 // after all keys of a partition

	tableLen  = 1 + 4
	headerLen = tableLen + 8
)

var errCorrupt = errors.New("store: corrupt record")

func appendTable(dst []byte, storeID uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, spaceData), storeID)
}

func appendToken(dst []byte, token int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(token)^1<<63)
}

// appendPartition appends the part of the key that all entries of a partition share.
func appendPartition(dst []byte, storeID uint32, token int64, key []byte) []byte {
	dst = appendToken(appendTable(dst, storeID), token)
	for {
		i := bytes.IndexByte(key, 0)
		if i < 0 {
			break
		}
		dst = append(append(dst, key[:i]...), 0, 0xFF)
		key = key[i+1:]
	}
	return append(append(dst, key...), 0, 0)
}

// splitPartition parses the beginning of a data key. It appends the partition key to
// buf and returns the length of the partition's part of k.
func splitPartition(k, buf []byte) (token int64, key []byte, n int, err error) {
	if len(k) < headerLen {
		return 0, buf, 0, errCorrupt
	}
	token = int64(binary.BigEndian.Uint64(k[tableLen:]) ^ 1<<63)
	for rest := k[headerLen:]; ; {
		i := bytes.IndexByte(rest, 0)
		if i < 0 || i+1 >= len(rest) {
			return 0, buf, 0, errCorrupt
		}
		buf = append(buf, rest[:i]...)
		escaped := rest[i+1] == 0xFF
		rest = rest[i+2:]
		if !escaped {
			return token, buf, len(k) - len(rest), nil
		}
		buf = append(buf, 0)
	}
}

// appendClustering appends values, a prefix of t's clustering key, in table order.
func appendClustering(dst []byte, t *catalog.Table, values [][]byte) []byte {
	for i, v := range values {
		c := t.Clustering[i]
		dst = cqltype.AppendKey(dst, c.Type, v, c.Desc)
	}
	return dst
}

// interval is a half-open range of row keys without the partition's part:
// both ends begin with the kind.
type interval struct{ lo, hi []byte }

func (iv interval) empty() bool { return bytes.Compare(iv.lo, iv.hi) >= 0 }

// wholePartition returns the interval of all clustering rows.
func wholePartition() interval { return interval{[]byte{kindRow}, []byte{kindEnd}} }

// toInterval converts a range of clustering values to one of keys.
func toInterval(t *catalog.Table, r Range) (interval, error) {
	if n := max(len(r.Start.Prefix), len(r.End.Prefix)); n > len(t.Clustering) {
		return interval{}, fmt.Errorf("range of %s.%s has a bound of %d values, clustering key has %d",
			t.Keyspace, t.Name, n, len(t.Clustering))
	}
	lo := appendClustering([]byte{kindRow}, t, r.Start.Prefix)
	if !r.Start.Inclusive {
		lo = successor(lo)
	}
	hi := appendClustering([]byte{kindRow}, t, r.End.Prefix)
	if r.End.Inclusive {
		hi = successor(hi)
	}
	return interval{lo, hi}, nil
}

// successor turns k into the smallest key above all keys that begin with k. It works in
// place; k must have a byte below 0xFF, as every kind is.
func successor(k []byte) []byte {
	for i := len(k) - 1; i >= 0; i-- {
		if k[i] != 0xFF {
			k[i]++
			return k[:i+1]
		}
	}
	return nil
}

// normalise sorts intervals, drops empty ones and joins adjacent ones.
func normalise(ivs []interval) []interval {
	ivs = slices.DeleteFunc(ivs, interval.empty)
	slices.SortFunc(ivs, func(a, b interval) int { return bytes.Compare(a.lo, b.lo) })
	out := ivs[:0]
	for _, iv := range ivs {
		if n := len(out); n > 0 && bytes.Compare(iv.lo, out[n-1].hi) <= 0 {
			if bytes.Compare(iv.hi, out[n-1].hi) > 0 {
				out[n-1].hi = iv.hi
			}
			continue
		}
		out = append(out, iv)
	}
	return out
}
