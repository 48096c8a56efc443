package notify

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// An update of shoutrrr adds its new services here too.
func TestServices_AreThoseOfShoutrrr(t *testing.T) {
	t.Parallel()
	own := []string{"generic", "logger", "smtp"} // logger is refused
	for scheme := range services {
		own = append(own, scheme)
	}
	theirs := new(router.ServiceRouter).ListServices()
	slices.Sort(own)
	slices.Sort(theirs)
	if !slices.Equal(own, theirs) {
		t.Errorf("the services are %v, those of shoutrrr %v", own, theirs)
	}
}

func TestURL_Forms(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"Discord://canarytokencanarytoken@123456789012345678": "",
		"teams+https://x.webhook.office.com/webhookb2/11111111-4444-4444-8444-cccccccccccc@22222222-4444-4444-8444-cccccccccccc/IncomingWebhook/33333333012222222222333333333344/44444444-4444-4444-8444-cccccccccccc/V2ESyij_gAljSoUQHvZoZYzlpAoAXExyOl26dlf1xHEx05": "",
		"mattermost+https://chat.example/canary":                                 "mattermost has no such URL: use mattermost://…",
		"telegraph://canary":                                                     `unknown service "telegraph"`,
		"slack://canary":                                                         "does not accept the form",
		"smtp+tls://mail.example/?from=a@b.org&to=c@d.org":                       "smtp has no such URL",
		"smtp://mail.example/?from=a@b.org":                                      "toAddress missing",
		"generic://hooks.example/canary?template=xml":                            `use json`,
		"generic+https://hooks.example/canary?@authorization=canary&$tag=canary": "",
	} {
		_, err := NewURL(raw)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

func TestURL_GenericPostsToAnyURL(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		switch n {
		case 4:
			w.WriteHeader(http.StatusTeapot)
		case 5:
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		case 6:
			panic(http.ErrAbortHandler)
		}
	})
	host := r.Listener.Addr().String()
	for _, tt := range []struct{ raw, path, body, contentType string }{
		{"generic://" + host + "/hook?a=b&disabletls=yes&@x-Token=t&@fooBar=1", "/hook?a=b", "Down\nboom", "text/plain"},
		{"generic+http://" + host + "/hook?a=b&template=JSON&@x-Token=t&@fooBar=1&$tag=x", "/hook?a=b", `{"message":"boom","tag":"x","title":"Down"}`, "application/json"},
		{"generic://" + host + "?disabletls=yes&template=json&titlekey=subject&messagekey=body&contenttype=application/x&method=PUT&@x-Token=t&@Foo-Bar=1", "/", `{"body":"boom","subject":"Down"}`, "application/x"},
	} {
		u, err := url.Parse(tt.raw)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSender(u)
		if err != nil {
			t.Fatal(err)
		}
		if err := s(t.Context(), "boom", &types.Params{types.TitleKey: "Down"}); err != nil {
			t.Fatal(err)
		}
		req, body := r.last(t)
		if req.URL.String() != tt.path || string(body) != tt.body || req.Header.Get("Content-Type") != tt.contentType || req.Header.Get("X-Token") != "t" || req.Header.Get("Foo-Bar") != "1" ||
			strings.Contains(tt.raw, "PUT") != (req.Method == http.MethodPut) {
			t.Errorf("%s: %s %s %v %s", tt.raw, req.Method, req.URL, req.Header, body)
		}
	}
	if err := mustURL(t, "generic://"+host+"?disabletls=yes").Send(t.Context(), testMessage()); err == nil || !strings.Contains(err.Error(), "418") || !IsPermanent(err) || IsUnavailable(err) {
		t.Errorf("a refused message: %v, want a permanent error", err)
	}
	if err := mustURL(t, "generic://"+host+"?disabletls=yes").Send(t.Context(), testMessage()); RequestedWait(err) != time.Minute || IsPermanent(err) || !IsUnavailable(err) {
		t.Errorf("a busy receiver: %v, want an unavailable target that asks for a minute", err)
	}
	if err := mustURL(t, "generic://"+host+"?disabletls=yes").Send(t.Context(), testMessage()); IsPermanent(err) || !IsUnavailable(err) {
		t.Errorf("a lost connection: %v, want an unavailable target", err)
	}
}

// A mail goes to the other recipients if the server refuses one.
func TestURL_MailToSeveral(t *testing.T) {
	t.Parallel()
	box := newMailbox(t)
	box.refuse = "bob@example.org"
	target := mustURL(t, "smtp://"+box.addr+"/?from=outbox@example.org&fromname=Öl&to=ann+x@example.org,bob@example.org,eve@example.org&usehtml=yes")
	m := testMessage()
	m.Title, m.Text = "Größe\r\nBcc: mallory@example.org", "1 < 2"
	if err := target.Send(t.Context(), m); err == nil || !strings.Contains(err.Error(), "recipient 2: ") || strings.Contains(err.Error(), "bob") {
		t.Errorf("Send() = %v, want the error of recipient 2", err)
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if got := strings.Join(box.to, " "); got != "ann+x@example.org eve@example.org" {
		t.Errorf("to %s", got)
	}
	for _, want := range []string{"From: =?utf-8?q?=C3=96l?= <outbox@example.org>", "\nTo: ann+x@example.org\n", "Subject: =?utf-8?q?Gr=C3=B6=C3=9Fe", "\n1 < 2\n", "<pre>1 &lt; 2\n"} {
		if !strings.Contains(strings.ReplaceAll(box.mail, "\r\n", "\n"), want) {
			t.Errorf("no %q in the mail\n%s", want, box.mail)
		}
	}
	if strings.Contains(box.mail, "\nBcc:") {
		t.Errorf("a title became a header:\n%s", box.mail)
	}
}

// Encryption and authentication follow the URL, and a server that offers none gets no mail.
func TestURL_MailNeedsWhatItAsksFor(t *testing.T) {
	t.Parallel()
	box := newMailbox(t)
	for query, want := range map[string]string{
		"&requirestarttls=yes":              "the server does not support STARTTLS",
		"&encryption=ImplicitTLS":           "tls",
		"&auth=Plain&timeout=5s":            "mechanism",
		"&auth=CRAMMD5":                     "mechanism",
		"&auth=None&encryption=ExplicitTLS": "",
	} {
		target := mustURL(t, "smtp://"+box.addr+"/?from=outbox@example.org&to=ann@example.org"+query)
		if err := target.Send(t.Context(), testMessage()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// A mail is encrypted where the server offers it, and its certificate is verified.
func TestURL_MailIsEncrypted(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	for query, implicit := range map[string]bool{"": false, "&requirestarttls=yes": false, "&encryption=ImplicitTLS": true} {
		box := newMailboxWith(t, &tls.Config{Certificates: server.TLS.Certificates}, implicit)
		raw := "smtp://" + box.addr + "/?from=outbox@example.org&to=ann@example.org" + query
		if err := mustURL(t, raw).Send(t.Context(), testMessage()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%q: %v, want an error of the certificate", query, err)
		}
		if err := mustURL(t, raw+"&skiptlsverify=yes").Send(t.Context(), testMessage()); err != nil {
			t.Errorf("%q: %v", query, err)
		}
		box.mu.Lock()
		if len(box.to) != 1 {
			t.Errorf("%q: mails to %v, want the one without verification", query, box.to)
		}
		box.mu.Unlock()
	}
}

// A server that does not answer holds a call no longer than its context.
func TestURL_MailEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	target := mustURL(t, "smtp://"+l.Addr().String()+"/?from=a@example.org&to=b@example.org&timeout=1h")
	done := make(chan error, 1)
	go func() { done <- target.Send(ctx, testMessage()) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a mail without an answer is sent")
		}
	case <-time.After(30 * time.Second):
		t.Error("the call does not end")
	}
}
