package glob

import "testing"

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"OrderCreated", "OrderCreated", true},
		{"OrderCreated", "OrderCreated2", false},
		{"Order*", "OrderCreated", true},
		{"Order*", "NoOrder", false},
		{"*", "shop/order/created", true},
		{"shop/*", "shop/order/created", true},
		{"*created", "shop/order/created", true},
		{"shop/order", "shop/order", true},
		{"shop?order", "shop/order", true},
		{"shop[/.]order", "shop/order", true},
		{"shop[/.]order", "shop-order", false},
		{"shop*", "", false},
		{"*", "", true},
		{"[", "[", false},
	} {
		if got := Match(tt.pattern, tt.name); got != tt.want {
			t.Errorf("Match(%q, %q) = %t", tt.pattern, tt.name, got)
		}
	}
	for pattern, want := range map[string]bool{"a": true, "*": true, "a/b": true, `\[`: true, "": false, "[": false, "a[": false, `\`: false} {
		if got := Valid(pattern); got != want {
			t.Errorf("Valid(%q) = %t", pattern, got)
		}
	}
}
