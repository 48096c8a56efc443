package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
)

// runCase runs the steps of a case in order in a new keyspace and hands on
// each answer.
func runCase(t *testing.T, addr string, c *corpusCase, answered func(i int, answer []string)) {
	t.Helper()
	client, err := dialRaw(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.close()
	for _, cql := range []string{
		"DROP KEYSPACE IF EXISTS " + c.keyspace(),
		"CREATE KEYSPACE " + c.keyspace() + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"USE " + c.keyspace(),
	} {
		if err := mustQuery(client, cql); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range c.steps {
		answer, err := client.do(s)
		if err != nil {
			t.Fatalf("%s: %s: %v", s.where, s.text, err)
		}
		answered(i, answer)
	}
	if err := mustQuery(client, "DROP KEYSPACE "+c.keyspace()); err != nil {
		t.Error(err)
	}
}

func mustQuery(c *rawClient, cql string) error {
	answer, err := c.send(&message.Query{Query: cql, Options: &message.QueryOptions{}})
	if err != nil {
		return err
	}
	if e, ok := answer.(message.Error); ok {
		return fmt.Errorf("%s: %s", cql, e.GetErrorMessage())
	}
	return nil
}

func indent(lines []string) string { return "\t" + strings.Join(lines, "\n\t") }
