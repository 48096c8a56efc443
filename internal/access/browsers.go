package access

import (
	"log/slog"
	"mime"
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
//   - With Hosts a request must name a host of that list (403). Otherwise a page
//     could make its own name resolve to this server (DNS rebinding) and be of
//     the same origin.
type Browsers struct {
	// Hosts is for servers without tokens. Nil allows any host: a foreign page has
	// no token to send, so a server with tokens needs no list.
	Hosts *Hosts
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
	if b.Hosts != nil && !b.Hosts.Allow(r.Host) {
		return &Error{
			Status: http.StatusForbidden, Reason: ForeignHost,
			Detail: "Without tokens this server answers only to IP addresses, localhost and its configured host names. Use one of them, or configure tokens.",
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
