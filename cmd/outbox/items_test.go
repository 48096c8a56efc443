package main

import (
	"encoding/json"
	"testing"
)

// decodeItems returns the entries of a list that a command printed as JSON.
func decodeItems[T any](t *testing.T, out string) []T {
	t.Helper()
	var list struct {
		Items []T `json:"items"`
		More  *bool
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.Items == nil || list.More == nil {
		t.Fatalf("the list is %q, want an object with items and more: %v", out, err)
	}
	return list.Items
}
