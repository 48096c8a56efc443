package scyllafake

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// FuzzConn sends any bytes to a connection, fresh or after STARTUP, and checks
// that the node still serves others.
func FuzzConn(f *testing.F) {
	s := setup(f)
	c := dialStarted(f, s)
	createKeyspace(c)
	c.exec("CREATE TABLE ks.t (p int, c int, v text, m map<int, text>, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}")
	one := &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PageSize: 2}
	for i, seed := range [][]message.Message{
		{message.NewStartup(), &message.Query{Query: selectKey, Options: one}},
		{&message.Query{Query: "SELECT * FROM ks.t", Options: one}, &message.Options{}},
		{&message.Query{Query: "INSERT INTO ks.t (p, c, v, m) VALUES (1, 2, 'v', {1: 'x'})", Options: one}},
		{&message.Query{Query: "UPDATE ks.t SET m[1] = 'y', v = null WHERE p = 1 AND c = 2 IF v = 'v'", Options: one}},
		{&message.Prepare{Query: "SELECT * FROM ks.t WHERE p = ? AND c IN ?"}, &message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}}},
		{&message.Batch{Children: []*message.BatchChild{{Query: "DELETE FROM ks.t WHERE p = 1"}}}},
	} {
		var b bytes.Buffer
		for _, m := range seed {
			if err := frame.NewCodec().EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, 1, m), &b); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(i > 0, b.Bytes())
	}
	f.Add(false, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	f.Add(false, []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}) // a TLS hello
	f.Fuzz(func(t *testing.T, ready bool, data []byte) {
		nc, err := s.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(5 * time.Minute))
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			io.Copy(io.Discard, nc) //nolint:errcheck // any answer will do
		}()
		if ready {
			startup := []byte{4, 0, 0, 0, byte(primitive.OpCodeStartup), 0, 0, 0, 2, 0, 0}
			if _, err := nc.Write(startup); err != nil {
				t.Fatal(err)
			}
		}
		nc.Write(data) //nolint:errcheck // the server may have hung up
		nc.Close()
		<-drained
		other := dialStarted(t, s)
		if _, ok := other.query(selectKey).(*message.RowsResult); !ok {
			t.Error("the node does not serve others any more")
		}
		other.nc.Close()
	})
}
