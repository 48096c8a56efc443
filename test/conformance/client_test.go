package conformance

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// requestTimeout bounds one request and its answer.
const requestTimeout = 5 * time.Minute

// rawClient is one connection, one request at a time, with frames of
// go-cassandra-native-protocol: it shows details that a driver hides.
type rawClient struct {
	conn  net.Conn
	codec frame.Codec
}

// dialRaw connects to addr and starts up with protocol version 4.
func dialRaw(ctx context.Context, addr string) (*rawClient, error) {
	conn, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &rawClient{conn: conn, codec: frame.NewCodec()}
	answer, err := c.send(message.NewStartup())
	if err != nil {
		conn.Close()
		return nil, err
	}
	if _, ok := answer.(*message.Ready); !ok {
		conn.Close()
		return nil, fmt.Errorf("startup: %v", answer)
	}
	return c, nil
}

func (c *rawClient) close() error { return c.conn.Close() }

// send sends a request and waits for its answer.
func (c *rawClient) send(m message.Message) (message.Message, error) {
	if err := c.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	if err := c.codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, 1, m), c.conn); err != nil {
		return nil, fmt.Errorf("send %v: %w", m, err)
	}
	f, err := c.codec.DecodeFrame(c.conn)
	if err != nil {
		return nil, fmt.Errorf("answer to %v: %w", m, err)
	}
	return f.Body.Message, nil
}

// do sends a step and returns the lines of its answer.
func (c *rawClient) do(s *step) ([]string, error) {
	time.Sleep(s.options.wait)
	var last []string
	for _, one := range s.requests() {
		lines, err := c.doOne(one)
		for end := time.Now().Add(requestTimeout); err == nil && s.options.until && strings.HasPrefix(lines[0], "error ") && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
			lines, err = c.doOne(one)
		}
		if err != nil {
			return nil, err
		}
		// Of a repeated step the answer counts once, unless it changes.
		if !slices.Equal(last, lines) {
			last = append(last, lines...)
		}
	}
	return last, nil
}

func (c *rawClient) doOne(s *step) ([]string, error) {
	if s.batch != nil {
		return c.batch(s)
	}
	options, err := s.queryOptions()
	if err != nil {
		return nil, err
	}
	if !s.prepared && !s.options.meta {
		return c.pages(options, nil, func() message.Message { return &message.Query{Query: s.cql, Options: options} })
	}
	answer, err := c.send(&message.Prepare{Query: s.cql})
	if err != nil {
		return nil, err
	}
	prepared, ok := answer.(*message.PreparedResult)
	if !ok {
		return answerLines(answer, nil)
	}
	if s.options.meta {
		return preparedLines(prepared), nil
	}
	return c.pages(options, prepared.ResultMetadata.Columns, func() message.Message {
		return &message.Execute{QueryId: prepared.PreparedQueryId, Options: options}
	})
}

// maxPages bounds an endless paging state.
const maxPages = 200

// pages sends a request until its last page; columns are the ones of a result without metadata.
func (c *rawClient) pages(options *message.QueryOptions, columns []*message.ColumnMetadata, request func() message.Message) ([]string, error) {
	var lines []string
	for range maxPages {
		answer, err := c.send(request())
		if err != nil {
			return nil, err
		}
		page, err := answerLines(answer, columns)
		if err != nil {
			return nil, err
		}
		if len(lines) > 0 && len(page) > 0 && page[0] == lines[0] {
			page = page[1:]
		}
		lines = append(lines, page...)
		rows, ok := answer.(*message.RowsResult)
		if !ok || rows.Metadata.PagingState == nil {
			return lines, nil
		}
		lines = append(lines, "more")
		options.PagingState = rows.Metadata.PagingState
	}
	return nil, fmt.Errorf("more than %d pages", maxPages)
}

func (c *rawClient) batch(s *step) ([]string, error) {
	options, err := s.queryOptions()
	if err != nil {
		return nil, err
	}
	m := &message.Batch{
		Consistency: options.Consistency, SerialConsistency: options.SerialConsistency, DefaultTimestamp: options.DefaultTimestamp,
	}
	switch s.batch.kind {
	case "unlogged":
		m.Type = primitive.BatchTypeUnlogged
	case "counter":
		m.Type = primitive.BatchTypeCounter
	}
	for _, item := range s.batch.items {
		if !item.prepared {
			m.Children = append(m.Children, &message.BatchChild{Query: item.cql})
			continue
		}
		answer, err := c.send(&message.Prepare{Query: item.cql})
		if err != nil {
			return nil, err
		}
		prepared, ok := answer.(*message.PreparedResult)
		if !ok {
			return answerLines(answer, nil)
		}
		m.Children = append(m.Children, &message.BatchChild{Id: prepared.PreparedQueryId, Values: wireValues(item.values)})
	}
	answer, err := c.send(m)
	if err != nil {
		return nil, err
	}
	return answerLines(answer, nil)
}

func wireValues(values []value) []*primitive.Value {
	wire := make([]*primitive.Value, len(values))
	for i, v := range values {
		wire[i] = primitive.NewValue(v.bytes)
		if v.unset {
			wire[i] = primitive.NewUnsetValue()
		}
	}
	return wire
}

func (s *step) queryOptions() (*message.QueryOptions, error) {
	o := &message.QueryOptions{
		Consistency: primitive.ConsistencyLevelOne, PageSize: s.options.pageSize,
		DefaultTimestamp: s.options.timestamp, SkipMetadata: s.options.skipMeta,
	}
	if o.PageSize == 0 {
		o.PageSize = 5000
	}
	if s.options.consistency != "" {
		level, err := level(s.options.consistency)
		if err != nil {
			return nil, err
		}
		o.Consistency = level
	}
	if s.options.serial != "" {
		level, err := level(s.options.serial)
		if err != nil {
			return nil, err
		}
		o.SerialConsistency = &level
	}
	if !s.options.names {
		o.PositionalValues = wireValues(s.values)
		return o, nil
	}
	o.NamedValues = map[string]*primitive.Value{}
	for i, v := range wireValues(s.values) {
		o.NamedValues[s.values[i].name] = v
	}
	return o, nil
}

func level(name string) (primitive.ConsistencyLevel, error) {
	for l := primitive.ConsistencyLevelAny; l <= primitive.ConsistencyLevelLocalOne; l++ {
		if consistencyNames[l] == name {
			return l, nil
		}
	}
	return 0, fmt.Errorf("unknown consistency %q", name)
}

var consistencyNames = [...]string{
	"ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL", "LOCAL_ONE",
}
