package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The newest events are listed by pages, as every list.
func TestEvents_ListByPages(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	a := outbox.NewID().UUID()
	var want []string
	for n := range int64(3) {
		want = append([]string{b.add(n+1, a, 0).ID.String()}, want...)
	}
	list := func(args ...string) (ids []string, next string) {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(append([]string{"events", "list", "-o", "json", "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr}, args...), &out, &errOut); code != cli.ExitOK {
			t.Fatalf("exit status %d: %s", code, errOut.String())
		}
		items, next := decodePage[admin.RecentEvent](t, out.String())
		for i := range items {
			ids = append(ids, items[i].EventID)
		}
		return ids, next
	}
	b.until("the events are listed", func() bool { ids, _ := list("--limit", "0"); return slices.Equal(ids, want) })
	first, next := list("--limit", "2")
	if !slices.Equal(first, want[:2]) || next == "" {
		t.Errorf("the first page is %q, next %q, want %q", first, next, want[:2])
	}
	if rest, next := list("--limit", "2", "--cursor", next); !slices.Equal(rest, want[2:]) || next != "" {
		t.Errorf("the second page is %q, next %q, want %q", rest, next, want[2:])
	}
	if out := b.execute(cli.ExitOK, []string{"events", "list"}); strings.Count(out, a.String()) != 3 {
		t.Errorf("the table is %s", out)
	}
	b.execute(cli.ExitUsage, []string{"events", "list", "--limit", "-1"})
	var errOut bytes.Buffer
	if code := run([]string{"events", "get", outbox.NewID().String(), "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr}, io.Discard, &errOut); code != cli.ExitFailed || !strings.Contains(errOut.String(), "add --aggregate-id.") {
		t.Errorf("an unknown event: exit status %d, %s", code, errOut.String())
	}
}

// The hint of an unknown aggregate is that of no archive.
func TestStatusHint_OfAnUnknownAggregate(t *testing.T) {
	t.Parallel()
	e := &adminclient.Error{Status: http.StatusNotFound, Type: httpapi.TypeNotFound, Path: "/v1/aggregates/nosuch"}
	if hint := statusHint(e, false); !strings.Contains(hint, "outbox events list") {
		t.Errorf("the hint is %q", hint)
	}
}
