package access

import (
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
)

// Browsers keeps a page of another origin from using the API through the browser
// of somebody who may reach it: the API of a machine's own loopback, say, which
// knows no tokens because nobody else comes there.
//
//   - A request that may change something must not come from another origin, as
//     Sec-Fetch-Site says, or Origin (403). Programs send neither.
//   - Its body, if it has one, must say that it is JSON (415): a page may send
//     forms, texts and bodies without a type anywhere, and JSON only where it is let.
//     Nor may it be compressed, which nothing here would undo (415).
//   - With OwnHost a request that comes over loopback must be for a name of
//     loopback (403): otherwise a page could have its own name resolve to
//     127.0.0.1, and be of the same origin.
type Browsers struct {
	// OwnHost is for servers that let in who has no token. Those that ask for one
	// may be called by the name of a proxy before them: a page that is not theirs
	// has no token to send.
	OwnHost bool
	// Refuse answers for the server.
	Refuse func(http.ResponseWriter, *http.Request, *Error)
	// Logger gets what was refused and where it came from.
	Logger *slog.Logger
}

// sameOrigin asks the headers that browsers send. It lets GET, HEAD and OPTIONS pass.
var sameOrigin = http.NewCrossOriginProtection()

// Wrap puts the checks before next.
func (b Browsers) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := b.check(r); e != nil {
			b.Logger.WarnContext(r.Context(), "refused: "+string(e.Reason), "remote", r.RemoteAddr, "method", r.Method, "host", clip(r.Host),
				"origin", clip(r.Header.Get("Origin")), "content_type", clip(r.Header.Get("Content-Type")))
			b.Refuse(w, r, e)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (b Browsers) check(r *http.Request) *Error {
	if b.OwnHost && overLoopback(r) && !loopbackName(r.Host) {
		other := clip(r.Host)
		if other == "" {
			other = "a request that names no host"
		}
		return &Error{
			Status: http.StatusForbidden, Reason: ForeignHost,
			Detail: "Over loopback this server answers to localhost, 127.0.0.1 and [::1] alone, not to " + other + ". Use one of them, or give the server tokens.",
		}
	}
	if reads(r.Method) {
		return nil
	}
	if sameOrigin.Check(r) != nil {
		return &Error{
			Status: http.StatusForbidden, Reason: ForeignOrigin,
			Detail: "A page of another origin may not change anything here. Send the request from a program, or from this server's own pages.",
		}
	}
	if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")) {
		return &Error{Status: http.StatusUnsupportedMediaType, Reason: NoJSON, Detail: "Send the body as JSON, with the header Content-Type: application/json."}
	}
	if coding := r.Header.Get("Content-Encoding"); r.ContentLength != 0 && coding != "" && !strings.EqualFold(coding, "identity") {
		return &Error{Status: http.StatusUnsupportedMediaType, Reason: Encoded, Detail: "Send the body as it is, without Content-Encoding: compressed ones are not taken."}
	}
	return nil
}

// reads tells whether a method changes nothing.
func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// isJSON tells whether a media type is JSON, or a kind of it that a browser does
// not send to others by itself either.
func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"))
}

// overLoopback tells whether a request came to this machine from itself.
func overLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// loopbackName tells whether a Host header names this machine alone.
func loopbackName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return loopbackHost(strings.ToLower(host))
}
