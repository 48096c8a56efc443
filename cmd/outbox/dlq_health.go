package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// relaySilent is for how long a relay may say nothing before it counts as gone.
const relaySilent = 15 * time.Second

// healthy returns nil if a replay of the letters may begin, and says what speaks
// against it.
func (f *dlqChangeFlags) healthy(cmd *cobra.Command, c *config, letters []dlq.Letter) error {
	tables := make(map[string]bool)
	for i := range letters {
		tables[letters[i].Table] = true
	}
	problems := append(relayProblems(cmd.Context(), c, tables), brokerProblems(cmd.Context(), c)...)
	if len(problems) == 0 {
		return nil
	}
	text := strings.Join(problems, "; ")
	if f.force {
		fmt.Fprintln(cmd.ErrOrStderr(), "not well: "+text+"; going on, as --force says")
		return nil
	}
	return withHint(errors.New("nothing was replayed: "+text), "mend it, or say --force: the relay publishes the letters once it can")
}

// brokerProblems says whether the broker cannot be reached.
func brokerProblems(ctx context.Context, c *config) []string {
	client, err := c.Kafka.client()
	if err != nil {
		return []string{err.Error()}
	}
	defer client.Close()
	if err := reachable(ctx, client, c.Kafka.Seeds); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// said is what is wanted of a relay's last word.
type said struct {
	State   string `json:"state"`
	Breaker struct {
		State string `json:"state"`
	} `json:"breaker"`
	// OtherInstances are other live processes of the relay's name.
	OtherInstances []string `json:"other_instances"`
}

// relayProblems says for which tables no relay runs, or more than one of a name, or
// one that has its breaker open.
func relayProblems(ctx context.Context, c *config, tables map[string]bool) (problems []string) {
	session, err := c.Scylla.session(c.Scylla.Keyspace)
	if err != nil {
		return []string{err.Error()}
	}
	defer session.Close()
	alive := make(map[string]said)
	iter := session.Query("SELECT table_name, at, status FROM relay_instances WHERE scope = ?", "keyspace").WithContext(ctx).Idempotent(true).Iter()
	var table, status string
	var at time.Time
	for iter.Scan(&table, &at, &status) {
		var v said
		if json.Unmarshal([]byte(status), &v) != nil || v.State == "stopped" || time.Since(at) > relaySilent {
			continue
		}
		if before, other := alive[table]; !other || v.Breaker.State != "open" {
			if len(v.OtherInstances) == 0 {
				v.OtherInstances = before.OtherInstances
			}
			alive[table] = v // of several relays of a table one that can publish counts
		}
	}
	if err := iter.Close(); err != nil {
		return []string{"read which relays run: " + err.Error()}
	}
	for t := range tables {
		v, ok := alive[t]
		switch {
		case !ok:
			problems = append(problems, "no relay of "+t+" runs")
		case v.Breaker.State == "open":
			problems = append(problems, "the breaker of the relay of "+t+" is open")
		case len(v.OtherInstances) > 0:
			problems = append(problems, "more than one process runs the relay of "+t+", and each would publish the letters: "+strings.Join(v.OtherInstances, ", ")+" beside the one that says so")
		}
	}
	return problems
}
