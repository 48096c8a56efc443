package main

import (
	"io"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/clitest"
)

// Every command and flag that a document names exists.
func TestDocs_Commands(t *testing.T) {
	t.Parallel()
	clitest.CheckDocuments(t, "../../..", "outbox-dev|bin/outbox-dev", 10, newRoot(io.Discard, io.Discard))
}
