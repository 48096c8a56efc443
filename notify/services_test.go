package notify

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
)

// fakeHosts redirects requests for real services to receivers of the tests.
var fakeHosts sync.Map // host[:port] to the receiver's host:port

// rewriting is the default transport in tests: the clients of shoutrrr cannot
// be redirected otherwise, and a mistake must not reach a real service.
type rewriting struct{ http.RoundTripper }

func (r rewriting) RoundTrip(req *http.Request) (*http.Response, error) {
	if to, ok := fakeHosts.Load(req.URL.Host); ok {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host = "http", to.(string)
		return r.RoundTripper.RoundTrip(req)
	}
	if host, _, err := net.SplitHostPort(req.URL.Host); err != nil || host != "127.0.0.1" {
		return nil, errors.New("a test tried to reach the network")
	}
	return r.RoundTripper.RoundTrip(req)
}

func TestMain(m *testing.M) {
	http.DefaultTransport = rewriting{http.DefaultTransport}
	os.Exit(m.Run())
}

func mustURL(t *testing.T, raw string) Target {
	t.Helper()
	target, err := NewURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestURL_Slack(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(_ int, w http.ResponseWriter) { _, _ = io.WriteString(w, "ok") })
	fakeHosts.Store("hooks.slack.com", r.Listener.Addr().String())
	target := mustURL(t, "slack://hook:T00000000-B00000000-XXXXXXXXXXXXXXXXXXXXXXXX@webhook")
	m := testMessage()
	m.Text = "boom <!channel> & <http://evil|click>"
	if err := target.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	req, body := r.last(t)
	if req.URL.Path != "/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX" {
		t.Errorf("path %s", req.URL.Path)
	}
	var got any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	text := flat(got)
	for _, want := range []string{"3 new dead letters", "https://console.example/console", "&lt;!channel&gt;", "&lt;http://evil|click&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("Slack got %s, want %q in it", text, want)
		}
	}
	if strings.Contains(text, "<!channel>") {
		t.Errorf("text of an event mentions the channel: %s", text)
	}
}

// flat returns all the strings in v.
func flat(v any) string {
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch x := v.(type) {
		case string:
			b.WriteString(x + "\n")
		case []any:
			for _, e := range x {
				walk(e)
			}
		case map[string]any:
			for _, e := range x {
				walk(e)
			}
		}
	}
	walk(v)
	return b.String()
}

func TestURL_PagerDutyOpensAndClosesOneIncident(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) })
	fakeHosts.Store("pager.test:443", r.Listener.Addr().String())
	const key = "0123456789abcdef0123456789abcdef"
	target := mustURL(t, "pagerduty://pager.test:443/"+key)
	for _, resolved := range []bool{false, true} {
		m := testMessage()
		m.Resolved = resolved
		if err := target.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		_, body := r.last(t)
		var got struct {
			RoutingKey  string `json:"routing_key"`
			EventAction string `json:"event_action"`
			DedupKey    string `json:"dedup_key"`
			Payload     struct{ Summary, Severity string }
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		want := "trigger"
		if resolved {
			want = "resolve"
		}
		if got.EventAction != want || got.DedupKey != m.Key || got.RoutingKey != key || got.Payload.Severity != "warning" || !strings.Contains(got.Payload.Summary, m.Title) {
			t.Errorf("PagerDuty got %s", body)
		}
	}
}

func TestURL_OtherChats(t *testing.T) {
	t.Parallel()
	for scheme, of := range map[string]func(host string) string{
		"generic":    func(h string) string { return "generic://" + h + "/hook?disabletls=yes&template=json" },
		"mattermost": func(h string) string { return "mattermost://" + h + "/tokentoken?disabletls=yes" },
		"rocketchat": func(h string) string { return "rocketchat://" + h + "/tokenAAAA/tokenBBBB" },
		"gotify":     func(h string) string { return "gotify://" + h + "/Aaa.bbb.ccc.ddd?disabletls=yes" },
		"ntfy":       func(h string) string { return "ntfy://" + h + "/topic?scheme=http" },
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, func(_ int, w http.ResponseWriter) { _, _ = io.WriteString(w, "{}") })
			fakeHosts.Store(r.Listener.Addr().String(), r.Listener.Addr().String()) // over https too
			if err := mustURL(t, of(r.Listener.Addr().String())).Send(t.Context(), testMessage()); err != nil {
				t.Fatal(err)
			}
			req, body := r.last(t)
			all := string(body)
			for _, vs := range req.Header {
				all += strings.Join(vs, "\n")
			}
			for _, want := range []string{"3 new dead letters", "attempts_used"} {
				if !strings.Contains(all, want) {
					t.Errorf("got %s, want %q in it", all, want)
				}
			}
		})
	}
}

// mailbox is an SMTP server that records its mails.
type mailbox struct {
	addr   string
	refuse string // recipient
	mu     sync.Mutex
	from   string
	to     []string
	mail   string
}

func newMailbox(t *testing.T) *mailbox { return newMailboxWith(t, nil, false) }

// newMailboxWith returns a mailbox that offers STARTTLS with conf, or TLS from the beginning.
func newMailboxWith(t *testing.T, conf *tls.Config, implicit bool) *mailbox {
	t.Helper()
	b := &mailbox{}
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return b, nil }))
	s.AllowInsecureAuth = true
	s.Domain = "localhost"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr().String()
	if implicit {
		l = tls.NewListener(l, conf)
	} else {
		s.TLSConfig = conf
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends when it is closed
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return b
}

func (b *mailbox) Reset()        {}
func (b *mailbox) Logout() error { return nil }
func (b *mailbox) Mail(from string, _ *smtp.MailOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from = from
	return nil
}

func (b *mailbox) Rcpt(to string, _ *smtp.RcptOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if to == b.refuse {
		return errors.New("no such mailbox")
	}
	b.to = append(b.to, to)
	return nil
}

func (b *mailbox) Data(r io.Reader) error {
	mail, err := io.ReadAll(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mail += string(mail)
	return err
}

func TestURL_Mail(t *testing.T) {
	t.Parallel()
	box := newMailbox(t)
	target := mustURL(t, "smtp://"+box.addr+"/?from=outbox@example.org&to=ann@example.org,bob@example.org&encryption=None&usestarttls=no&auth=None")
	m := testMessage()
	m.Title = line("3 new dead letters of type Order\r\nBcc: eve@example.org")
	if err := target.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.from != "outbox@example.org" || strings.Join(box.to, " ") != "ann@example.org bob@example.org" {
		t.Errorf("from %s to %v", box.from, box.to)
	}
	head, body, _ := strings.Cut(strings.ReplaceAll(box.mail, "\r\n", "\n"), "\n\n")
	if strings.Contains(head, "\nBcc:") {
		t.Errorf("an event's type became a header:\n%s", head)
	}
	if !strings.Contains(head, "Subject: ") || !strings.Contains(head, "3 new dead letters") || !strings.Contains(body, "https://console.example/console") {
		t.Errorf("mail:\n%s", box.mail)
	}
}

func TestURL_ErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // its port, were it closed, would soon be another test's
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	dead := l.Addr().String()
	fakeHosts.Store("discord.com", dead)
	refuses := newReceiver(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	for _, raw := range []string{
		"generic://" + dead + "/canarypath?disabletls=yes&@authorization=canarytoken",
		"generic://" + refuses.Listener.Addr().String() + "/canarypath?disabletls=yes",
		"mattermost://canaryuser@" + dead + "/canarytoken?disabletls=yes",
		"smtp://canaryuser:canarypass@" + dead + "/?from=a@b.org&to=canary@b.org",
		"discord://canarytokencanarytoken@123456789012345678",
	} {
		target, err := NewURL(raw)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err = target.Send(ctx, testMessage())
			cancel()
		}
		if err == nil {
			t.Errorf("%s: no error", raw)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error shows a secret: %v", raw, err)
		}
	}
}

func TestURL_LongTextIsCut(t *testing.T) {
	t.Parallel()
	c := &chat{scheme: "discord"}
	m := testMessage()
	m.Text = strings.Repeat("ä", 10_000)
	text, _ := c.compose(&m)
	if n := len([]rune(text)); n > maxChat+100 || !strings.HasSuffix(text, m.URL) {
		t.Errorf("%d characters, ending %q", n, text[len(text)-40:])
	}
}

// TestDispatcher_EndToEnd has one process with every kind of receiver: one that
// recovers, one that requests a delay, one that hangs, and e-mail.
func TestDispatcher_EndToEnd(t *testing.T) {
	t.Parallel()
	flaky := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	busy := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	release := make(chan struct{})
	hangs := newReceiver(t, func(int, http.ResponseWriter) { <-release })
	defer close(release)
	box := newMailbox(t)
	targets, err := ParseTargets([]string{
		"flaky=webhook+" + flaky.URL, "busy=webhook+" + busy.URL, "hangs=generic://" + hangs.Listener.Addr().String() + "/?disabletls=yes",
		"mail=smtp://" + box.addr + "/?from=a@example.org&to=b@example.org&encryption=None&usestarttls=no&auth=None",
	}, []string{oldSecret})
	if err != nil {
		t.Fatal(err)
	}
	// The hanging one never returns: neither Notify nor stop waits for it.
	d := start(t, Config{Targets: targets, Backoff: 10 * time.Millisecond, Timeout: time.Hour, DrainTimeout: 100 * time.Millisecond})
	for range 3 {
		d.Notify(testMessage())
	}
	deadline := time.Now().Add(5 * time.Minute)
	for _, target := range []string{"flaky", "busy", "mail"} {
		for d.metric(t, "outbox_notifications_sent_total", target) < 3 {
			if time.Now().After(deadline) {
				t.Fatalf("%s took %v of 3; log:\n%s", target, d.metric(t, "outbox_notifications_sent_total", target), d.log)
			}
			time.Sleep(5 * time.Millisecond) // polls to the deadline
		}
	}
	busy.mu.Lock()
	n := len(busy.reqs)
	busy.mu.Unlock()
	if n != 4 {
		t.Errorf("busy got %d requests, want 3 and a retry", n)
	}
	d.stop()
}
