package promtool

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestDashboard_QueriesParse reads every query of the dashboard as Prometheus
// does.
func TestDashboard_QueriesParse(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../deploy/grafana/dashboards/outbox.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			n++
			// Grafana puts a duration there.
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(q.Expr, "$__rate_interval", "1m")); err != nil {
				t.Errorf("%s: %s: %v", p.Title, q.Expr, err)
			}
		}
	}
	if n == 0 {
		t.Error("there is no query")
	}
}
