package main

import (
	"encoding/json"
	"testing"
)

// decodePage returns the entries of a list that a command printed as JSON, and the cursor of the
// next page.
func decodePage[T any](t *testing.T, out string) (items []T, next string) {
	t.Helper()
	var list struct {
		Items []T `json:"items"`
		Next  string
		More  *bool
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || list.Items == nil || list.More != nil {
		t.Fatalf("the list is %q, want an object with items and next: %v", out, err)
	}
	return list.Items, list.Next
}

// decodeItems returns the entries of decodePage.
func decodeItems[T any](t *testing.T, out string) []T {
	t.Helper()
	items, _ := decodePage[T](t, out)
	return items
}
