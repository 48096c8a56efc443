package subscriptions

import "testing"

func TestParseLeaseID(t *testing.T) {
	t.Parallel()
	for _, id := range []LeaseID{{"a.b-c_D", 0, 0, 1}, {"t", 7, 1 << 60, 1 << 63}} {
		if got, err := ParseLeaseID(id.String()); err != nil || got != id {
			t.Errorf("ParseLeaseID(%s) = %+v, %v", id, got, err)
		}
	}
	for _, bad := range []string{"", "a", ":0:0:1", "a:0:0", "a:0:0:1:2", "a:x:0:1", "a:0:x:1", "a:0:0:-1", "a:+0:0:1", "a:99999999999:0:1"} {
		if got, err := ParseLeaseID(bad); err == nil {
			t.Errorf("ParseLeaseID(%q) = %+v", bad, got)
		}
	}
}
