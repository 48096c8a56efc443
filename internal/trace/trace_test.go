package trace

import (
	"maps"
	"strings"
	"testing"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, tt := range []struct {
		parent, state, request string
		want                   map[string]string
	}{
		{"", "", "", nil},
		{parent, "a=b", "r", map[string]string{"traceparent": parent, "tracestate": "a=b", "x-request-id": "r"}},
		{parent, strings.Repeat("x", 513), "", map[string]string{"traceparent": parent}},
		{"ff" + parent[2:], "a=b", "r", map[string]string{"x-request-id": "r"}},
		{parent + "-x", "", "", nil},
		{"01" + parent[2:] + "-x", "", "", map[string]string{"traceparent": "01" + parent[2:] + "-x"}},
		{strings.Replace(parent, "00f067aa0ba902b7", "0000000000000000", 1), "", "a\nb", nil},
		{"", "a=b", strings.Repeat("r", 256), nil},
	} {
		if got := Headers(t.Context(), tt.parent, tt.state, tt.request); !maps.Equal(got, tt.want) {
			t.Errorf("Headers(%q, %q, %q) = %v, want %v", tt.parent, tt.state, tt.request, got, tt.want)
		}
	}
}
