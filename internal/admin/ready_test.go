package admin

import (
	"net/http"
	"testing"
)

// /readyz lists the database nodes that do not respond, without authentication.
func TestServer_ReadinessNamesNodes(t *testing.T) {
	t.Parallel()
	var down nodes
	b := setup(t, func(c *Config) { c.Nodes = &down })
	for _, want := range []string{
		`{"status":"ready"}` + "\n",
		`{"status":"ready","database_nodes_down":["10.0.0.2"]}` + "\n",
	} {
		if a := b.ask(t, "", "GET", "/readyz", ""); a.code != http.StatusOK || string(a.body) != want {
			t.Errorf("/readyz = %d %s, want %s", a.code, a.body, want)
		}
		down = nodes{"10.0.0.2"}
	}
}

// nodes are the addresses of nodes that are down.
type nodes []string

func (n *nodes) Down() []string { return *n }
