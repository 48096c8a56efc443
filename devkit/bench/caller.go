package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Caller makes HTTP requests over one connection, one after the other. It costs a third
// of the processor time of http.Client, which matters where the load shares a machine
// with the service that it measures. It is not safe for concurrent use.
type Caller struct {
	// Addr is host:port.
	Addr string
	// Timeout limits a request.
	Timeout time.Duration
	// Body receives the body of each response; nil discards it.
	Body *bytes.Buffer

	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// Post sends a JSON body and returns the status of the response. header contains
// further lines, each with its line end. After an error the next request has a new
// connection.
func (c *Caller) Post(ctx context.Context, path, header string, body []byte) (status int, err error) {
	defer func() {
		if err != nil {
			c.Close()
			err = fmt.Errorf("POST %s: %w", path, err)
		}
	}()
	if c.conn == nil {
		if c.conn, err = new(net.Dialer).DialContext(ctx, "tcp", c.Addr); err != nil {
			return 0, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(c.Timeout)); err != nil {
		return 0, err
	}
	b := append(c.out[:0], "POST "...)
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.Addr...)
	b = append(b, "\r\nContent-Type: application/json\r\n"...)
	b = append(b, header...)
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, body...)
	c.out = b
	if _, err := c.conn.Write(b); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var to io.Writer = io.Discard
	if c.Body != nil {
		c.Body.Reset()
		to = c.Body
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return 0, err
	}
	if resp.Close {
		c.Close()
	}
	return resp.StatusCode, nil
}

// Close closes the connection, if there is one.
func (c *Caller) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// AnswerOf classifies a status.
func AnswerOf(status int, err error) Answer {
	switch {
	case err != nil:
		return Failed
	case status == http.StatusTooManyRequests:
		return Refused
	case status == http.StatusServiceUnavailable:
		return Unavailable
	case status >= 300:
		return Failed
	}
	return Served
}
