//go:build fault || peers

package fault

import (
	"os"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
