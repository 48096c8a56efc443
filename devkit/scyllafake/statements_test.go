package scyllafake

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

func createKeyspace(c *rawClient) {
	c.t.Helper()
	c.exec("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
}

// The events of a statement come before its result on its own connection
// (recording B8).
func TestServer_EventsBeforeResult(t *testing.T) {
	t.Parallel()
	s := setup(t)
	c := dialStarted(t, s)
	if _, ok := c.do(&message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}}).(*message.Ready); !ok {
		t.Fatal("REGISTER failed")
	}
	createKeyspace(c)
	steps := []struct{ text, want string }{
		{"CREATE TABLE ks.t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true}", "CREATED TABLE t, CREATED TABLE t_scylla_cdc_log"},
		{"TRUNCATE ks.t", ""},
		{"DROP KEYSPACE ks", "DROPPED TABLE t, DROPPED TABLE t_scylla_cdc_log, DROPPED KEYSPACE "},
	}
	for _, step := range steps {
		c.events = nil
		if e, ok := c.query(step.text).(message.Error); ok {
			t.Fatalf("%s: %v", step.text, e)
		}
		var got []string
		for _, m := range c.events {
			e := m.(*message.SchemaChangeEvent)
			got = append(got, fmt.Sprintf("%s %s %s", e.ChangeType, e.Target, e.Object))
		}
		if g := strings.Join(got, ", "); g != step.want {
			t.Errorf("%s: events %q before the result, want %q", step.text, g, step.want)
		}
	}
}

// Prepared statements die with any change of their table and of no other
// (recordings C13, E14).
func TestServer_PreparedInvalidation(t *testing.T) {
	t.Parallel()
	s := setup(t)
	c := dialStarted(t, s)
	createKeyspace(c)
	c.exec("CREATE TABLE ks.t (p int PRIMARY KEY, v int)", "CREATE TABLE ks.other (p int PRIMARY KEY)")
	const text = "SELECT * FROM ks.t WHERE p = ?"
	prepare := func() []byte {
		t.Helper()
		p, ok := c.do(&message.Prepare{Query: text}).(*message.PreparedResult)
		if !ok {
			t.Fatal("PREPARE failed")
		}
		return p.PreparedQueryId
	}
	execute := func(id []byte) message.Message {
		return c.do(&message.Execute{QueryId: id, Options: &message.QueryOptions{
			Consistency: primitive.ConsistencyLevelOne, PositionalValues: []*primitive.Value{primitive.NewValue([]byte{0, 0, 0, 1})},
		}})
	}
	id := prepare()
	for _, tt := range []struct {
		ddl   string
		alive bool
	}{
		{"ALTER TABLE ks.other ADD x int", true},
		{"TRUNCATE ks.t", true},
		{"ALTER TABLE ks.t WITH comment = 'x'", false},
		{"ALTER TABLE ks.t ADD w int", false},
		{"ALTER TABLE ks.t WITH cdc = {'enabled': true}", false},
		{"DROP TABLE ks.t", false},
	} {
		c.exec(tt.ddl)
		switch m := execute(id).(type) {
		case *message.RowsResult:
			if !tt.alive {
				t.Errorf("after %s the statement is still prepared", tt.ddl)
			}
		case *message.Unprepared:
			if tt.alive {
				t.Errorf("after %s the statement is not prepared", tt.ddl)
			}
			if !bytes.Equal(m.Id, id) || m.ErrorMessage != fmt.Sprintf("No prepared statement with ID %x found.", id) {
				t.Errorf("UNPREPARED with id %x and text %q", m.Id, m.ErrorMessage)
			}
			if tt.ddl == "DROP TABLE ks.t" {
				c.exec("CREATE TABLE ks.t (p int PRIMARY KEY, v int)")
				if _, ok := execute(id).(*message.Unprepared); !ok {
					t.Error("the id is known again after DROP and CREATE alone")
				}
			}
			if again := prepare(); !bytes.Equal(again, id) {
				t.Errorf("prepared again it has the id %x, before %x", again, id)
			}
		default:
			t.Errorf("after %s: %v", tt.ddl, m)
		}
	}
}

// DDL can be prepared without effect and without a check of names (A7), and executed.
func TestServer_PreparedDDL(t *testing.T) {
	t.Parallel()
	c := dialStarted(t, setup(t))
	createKeyspace(c)
	for _, text := range []string{"CREATE TABLE ks.never (k int PRIMARY KEY)", "DROP TABLE ks.nosuch", "ALTER TABLE nosuch.t ADD x int", "TRUNCATE ks.kv", "USE ks"} {
		p, ok := c.do(&message.Prepare{Query: text}).(*message.PreparedResult)
		if !ok || len(p.VariablesMetadata.Columns) != 0 {
			t.Fatalf("PREPARE %s: %v", text, p)
		}
	}
	wantError(t, "the table was not created", c.query("SELECT * FROM ks.never"), primitive.ErrorCodeInvalid, "unconfigured table never")
	p := c.do(&message.Prepare{Query: "CREATE TABLE ks.t (k int PRIMARY KEY)"}).(*message.PreparedResult)
	if r, ok := c.do(&message.Execute{QueryId: p.PreparedQueryId, Options: &message.QueryOptions{}}).(*message.SchemaChangeResult); !ok || r.Object != "t" {
		t.Errorf("EXECUTE of it: %v", r)
	}
}

func TestServer_Use(t *testing.T) {
	t.Parallel()
	s := setup(t)
	c := dialStarted(t, s)
	createKeyspace(c)
	c.exec("CREATE TABLE ks.kv (k int PRIMARY KEY)")
	const none = "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"
	wantError(t, "before USE", c.query("SELECT * FROM kv"), primitive.ErrorCodeInvalid, none)
	wantError(t, "USE of none", c.query("USE nosuch"), primitive.ErrorCodeInvalid, "Keyspace 'nosuch' does not exist")
	if r, ok := c.query(`USE "ks"`).(*message.SetKeyspaceResult); !ok || r.Keyspace != "ks" {
		t.Fatalf("USE: %v", r)
	}
	c.exec("SELECT * FROM kv", "CREATE TABLE other (k int PRIMARY KEY)", "DROP TABLE other")
	wantError(t, "another connection", dialStarted(t, s).query("SELECT * FROM kv"), primitive.ErrorCodeInvalid, none)
}

func TestServer_Tracing(t *testing.T) {
	t.Parallel()
	c := dialStarted(t, setup(t))
	c.write(raw(t, "04 02 0005 07 00000023 0000001c 53454c454354206b65792046524f4d2073797374656d2e6c6f63616c 0001 00"))
	f := c.read()
	if f.Body.TracingId == nil {
		t.Error("no tracing id")
	}
	if r, ok := f.Body.Message.(*message.RowsResult); !ok || string(r.Data[0][0]) != "local" {
		t.Errorf("answer = %v", f.Body.Message)
	}
}
