package orders

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// A body that is cut off or too large is reported as a client error, and as
// early as possible.
func TestHTTP_BodiesThatDoNotArrive(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s, err := New(nil, Config{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(newHandler(t, s, apiserver.Config{}))
	defer srv.Close()
	for name, tt := range map[string]struct {
		header, body string
		status       int
		kind         string
	}{
		"cut off":               {"Content-Length: 100\r\n", goodBody[:50], 400, problemMalformed},
		"cut off in chunks":     {"Transfer-Encoding: chunked\r\n", "5\r\n{\"a\":", 400, problemMalformed},
		"no chunk":              {"Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n", 400, problemMalformed},
		"announces too much":    {"Content-Length: 100000000\r\n", "", 413, httpapi.TypeTooLarge},
		"asks before too much":  {"Content-Length: 100000000\r\nExpect: 100-continue\r\n", "", 413, httpapi.TypeTooLarge},
		"too much, unannounced": {"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%0*d\r\n0\r\n\r\n", 300<<10, 300<<10, 0), 413, httpapi.TypeTooLarge},
		"compressed":            {"Content-Length: 2\r\nContent-Encoding: gzip\r\n", "{}", 415, httpapi.TypeMedia},
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /v1/orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+tt.header+"\r\n"+tt.body); err != nil {
			t.Fatal(err)
		}
		if tt.status == 400 {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var p problem
		err = json.NewDecoder(resp.Body).Decode(&p)
		if err != nil || resp.StatusCode != tt.status || p.Status != tt.status || p.Type != tt.kind || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %+v, %v, want %d %s", name, resp.StatusCode, p, err, tt.status, tt.kind)
		}
		if got := resp.Header.Get("Accept-Encoding"); (got == "identity") != (tt.status == 415) {
			t.Errorf("%s: Accept-Encoding %q", name, got)
		}
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "code" && l.GetValue() == "500" {
					t.Errorf("%s counts a defect of the server", f.GetName())
				}
			}
		}
	}
}
