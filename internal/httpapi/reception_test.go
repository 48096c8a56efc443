package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// startReception is a reception on loopback with its client.
func startReception(t *testing.T, h http.Handler) (r *Reception, ln net.Listener, ask func(method, path string) (*http.Response, string)) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r = Receive(ln, h, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	client := &http.Client{Transport: new(http.Transport)}
	t.Cleanup(client.CloseIdleConnections)
	return r, ln, func(method, path string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+ln.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}
}

// Until the server is ready its address responds with the reason; afterwards the server
// responds there, also to the same client.
func TestReception_PassesItsListenerOn(t *testing.T) {
	t.Parallel()
	why := "starting: the database is waited for"
	r, ln, ask := startReception(t, Starting(func() string { return why }))
	for path, want := range map[string]string{"/readyz": why, "/metrics": "Nothing was changed; retry later", "/v1/orders": "Nothing was changed; retry later"} {
		resp, body := ask("POST", path)
		if path == "/readyz" {
			resp, body = ask("GET", path)
		}
		var p Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || resp.StatusCode != 503 || p.Type != TypeUnavailable || !strings.Contains(p.Detail, want) ||
			resp.Header.Get("Retry-After") != "2" || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s = %d %v %s", path, resp.StatusCode, resp.Header, body)
		}
	}
	if resp, body := ask("GET", "/livez"); resp.StatusCode != 200 || body != "{\"status\":\"ok\"}\n" {
		t.Errorf("/livez = %d %s", resp.StatusCode, body)
	}

	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
		served <- Server{Name: "test", DrainTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}.Serve(ctx, r.HandOver(), h)
	}()
	for {
		if _, body := ask("GET", "/livez"); body == "served" { // else it came to the reception while that ended
			break
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String()); err == nil {
		conn.Close()
		t.Error("the address is open when its server has ended")
	}
}

// readListener reports that its only connection is read.
type readListener struct {
	net.Listener
	read chan struct{}
}

func (l readListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readConn{Conn: c, read: l.read}, nil
}

type readConn struct {
	net.Conn
	once sync.Once
	read chan struct{}
}

func (c *readConn) Read(b []byte) (int, error) {
	c.once.Do(func() { close(c.read) })
	return c.Conn.Read(b)
}

// A client that connected before the handover receives a response after it.
func TestReception_AnswersEarlierConnections(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	r := Receive(readListener{ln, read}, Starting(func() string { return "" }), slog.New(slog.DiscardHandler))
	defer r.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-read
	next := r.HandOver()
	select {
	case <-r.ended:
		t.Error("the reception has ended without a response")
	case <-time.After(50 * time.Millisecond):
	}
	_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\n")
	_, _ = io.WriteString(conn, "Host: here\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the response is %s", resp.Status)
	}
	next.Close()
}

// A process that stops before its server is ready releases the address.
func TestReception_ClosesWithoutAServer(t *testing.T) {
	t.Parallel()
	r, ln, _ := startReception(t, Starting(func() string { return "" }))
	if err := r.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String()); err == nil {
		conn.Close()
		t.Error("the address is open when the reception is closed")
	}
	if conn, err := r.HandOver().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() after Close() = %v, %v", conn, err)
	}
}

// The next owner of a failed listener receives its error.
func TestReception_ReportsAFailedListener(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := Receive(failing{broken}, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	defer r.Close()
	if err := (Server{Name: "test", DrainTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}).Serve(t.Context(), r.HandOver(), http.NotFoundHandler()); !errors.Is(err, broken) {
		t.Errorf("Serve() = %v, want that the listener is broken", err)
	}
}

// failing is a listener that accepts nothing.
type failing struct{ err error }

func (f failing) Accept() (net.Conn, error) { return nil, f.err }
func (failing) Close() error                { return nil }
func (failing) Addr() net.Addr              { return &net.TCPAddr{} }
