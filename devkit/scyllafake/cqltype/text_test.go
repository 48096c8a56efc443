package cqltype_test

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/test/cqlvalue"
)

// Texts and their formatted values match the golden recordings, C1.
func TestFromText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ty         *cqltype.Type
		text, want string
	}{
		{cqltype.TASCII, "a", "'a'"},
		{cqltype.TText, "it's", "'it''s'"},
		{cqltype.TBlob, "CAFE", "0xcafe"},
		{cqltype.TBoolean, "TRUE", "true"},
		{cqltype.TInt, "-7", "-7"},
		{cqltype.TDate, "2020-01-01", "'2020-01-01'"},
		{cqltype.TDate, "2147483648", "'1970-01-01'"},
		{cqltype.TDecimal, "1.50", "150E-2"},
		{cqltype.TDecimal, "-1e3", "-1E3"},
		{cqltype.TDecimal, ".5", "5E-1"},
		{cqltype.TDouble, "1e3", "1000"},
		{cqltype.TDouble, "-Infinity", "-Inf"},
		{cqltype.TFloat, "NaN", "NaN"},
		{cqltype.TInet, "::1", "'::1'"},
		{cqltype.TInet, "10.1.2.3", "'10.1.2.3'"},
		{cqltype.TTime, "10:11:12.123456789", "36672123456789"},
		{cqltype.TTimestamp, "1600000000123", "'2020-09-13 12:26:40.123+0000'"},
		{cqltype.TTimestamp, "2020-01-01", "'2020-01-01 00:00:00.000+0000'"},
		{cqltype.TTimestamp, "2020-01-01T10:11:12.5Z", "'2020-01-01 10:11:12.500+0000'"},
		{cqltype.TTimestamp, "2020-01-01 00:00:00+0100", "'2019-12-31 23:00:00.000+0000'"},
		{cqltype.TTimestamp, "2015-07-14 00:00+0000", "'2015-07-14 00:00:00.000+0000'"},
		{cqltype.TTimestamp, "2015-07-14 00:00-02:30", "'2015-07-14 02:30:00.000+0000'"},
		{cqltype.TTimeUUID, "50554d6e-29bb-11e5-b345-feff819cdc9f", "50554d6e-29bb-11e5-b345-feff819cdc9f"},
		{cqltype.TVarint, "123456789012345678901234567890", "123456789012345678901234567890"},
		{cqltype.TVarint, "-128", "-128"},
		{cqltype.TVarint, "-129", "-129"},
		{cqltype.TVarint, "-1", "-1"},
		{cqltype.TVarint, "0", "0"},
		{cqltype.TVarint, "127", "127"},
		{cqltype.TVarint, "128", "128"},
		{cqltype.TVarint, "-123456789012345678901234567890", "-123456789012345678901234567890"},
		{cqltype.TUUID, "", "0x"},
	}
	for _, tt := range tests {
		v, err := tt.ty.FromText(tt.text)
		if err != nil {
			t.Errorf("%s: FromText(%q) error = %v", tt.ty, tt.text, err)
			continue
		}
		if err := tt.ty.Validate(v); err != nil {
			t.Errorf("%s: FromText(%q) is not valid: %v", tt.ty, tt.text, err)
		}
		if got := cqlvalue.Format(tt.ty, v); got != tt.want {
			t.Errorf("%s: FromText(%q) = %s, want %s", tt.ty, tt.text, got, tt.want)
		}
	}
}
