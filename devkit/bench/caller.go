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

	// Overloaded reports whether the last response was a refusal because of overload.
	Overloaded bool

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
	if status, ok, err := c.short(); ok || err != nil {
		return status, err
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

// short reads a response that is in the buffer as a whole and keeps the connection. It
// parses the status and the length only, which takes a fraction of the time of net/http.
// For any other response it reads nothing and returns false.
func (c *Caller) short() (status int, ok bool, err error) {
	c.Overloaded = false
	if _, err := c.in.Peek(1); err != nil { // waits for the response
		return 0, false, err
	}
	b, _ := c.in.Peek(c.in.Buffered()) // not longer than the buffer
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < len("HTTP/1.1 200") || bytes.Contains(b[:end], []byte("\r\nConnection: close")) {
		return 0, false, nil
	}
	status, err = strconv.Atoi(string(b[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
	_, length, found := bytes.Cut(b[:end+2], []byte("\r\nContent-Length: "))
	if err != nil || !found {
		return 0, false, nil
	}
	n, err := strconv.Atoi(string(length[:bytes.IndexByte(length, '\r')]))
	if err != nil || end+4+n > len(b) {
		return 0, false, nil
	}
	body := b[end+4 : end+4+n]
	c.Overloaded = status == http.StatusServiceUnavailable && bytes.Contains(body, overloaded)
	if c.Body != nil {
		c.Body.Reset()
		c.Body.Write(body)
	}
	_, err = c.in.Discard(end + 4 + n)
	return status, err == nil, err
}

// overloaded is the type of the problem of a refusal because of overload.
var overloaded = []byte(`"urn:scylla-outbox:problem:overloaded"`)

// Close closes the connection, if there is one.
func (c *Caller) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ClassifyAnswer classifies the result of a Post.
func (c *Caller) ClassifyAnswer(status int, err error) Answer {
	switch {
	case err != nil:
		return Failed
	case c.Overloaded || status == http.StatusTooManyRequests:
		return Refused
	case status == http.StatusServiceUnavailable:
		return Unavailable
	case status >= 300:
		return Failed
	}
	return Served
}
