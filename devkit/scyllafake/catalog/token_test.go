package catalog

import (
	"encoding/hex"
	"math"
	"testing"
)

// The tokens match a real node for these keys.
func TestTable_Token(t *testing.T) {
	t.Parallel()
	log := &Table{Options: Options{Partitioner: CDCPartitioner}}
	ordinary := &Table{}
	tests := []struct {
		name  string
		table *Table
		key   string
		want  int64
	}{
		{"int 1", ordinary, "00000001", -4069959284402364209},
		{"int 5", ordinary, "00000005", -7509452495886106294},
		{"int -3", ordinary, "fffffffd", -3728575298071870435},
		{
			"composite with empty parts", ordinary,
			"000000" + "0003" + "617070" + "00" + "000000" + "000000", -4679376234679789796,
		},
		{
			"composite above 32 bytes", ordinary,
			"0008" + "00000174876e807b" + "00" + "0003" + "617070" + "00" + "0004" + "6b732e74" + "00" +
				"0010" + "0102030405060708090a0b0c0d0e0f10" + "00", 409316441254556940,
		},
		{
			"composite with the end of a block", ordinary,
			"000000" + "0003" + "617070" + "00" + "0004" + "6b732e74" + "00" + "000000", 1602252817420413212,
		},
		{"stream id", log, "9733b092a84c9cf3c870d525340001c1", -7551498006234882829},
		{"no stream id", log, "00", math.MinInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			key, err := hex.DecodeString(tt.key)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.table.Token(key); got != tt.want {
				t.Errorf("Token(%s) = %d, want %d", tt.key, got, tt.want)
			}
		})
	}
}
