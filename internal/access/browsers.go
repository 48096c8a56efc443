package access

import (
	"log/slog"
	"mime"
	"net/http"
	"strings"
)

// Browsers refuses requests that a page of another origin sends through the browser of a
// user with access: for example to an API on loopback, which has no tokens because other
// machines cannot reach it.
//
//   - A request that may change something must not come from another origin, by
//     Sec-Fetch-Site or Origin (403). Programs send neither.
//   - A body must have a JSON content type (415): pages can send forms, texts and bodies
//     without a type to any origin, but JSON only with permission. It must not be
//     compressed, because nothing decompresses it (415).
//   - With Hosts a request must name a host of that list (403). Otherwise a page could
//     resolve its own name to this server (DNS rebinding) and have the same origin.
type Browsers struct {
	// Hosts is for servers without tokens. Nil allows any host: a server with tokens needs
	// no list, because a page of another origin has no token.
	Hosts *Hosts
	// Refuse writes the response to a refused request.
	Refuse func(http.ResponseWriter, *http.Request, *Error)
	// Logger logs refused requests with their address.
	Logger *slog.Logger
}

// sameOrigin checks the headers that browsers send. It allows GET, HEAD and OPTIONS.
var sameOrigin = http.NewCrossOriginProtection()

// Wrap checks requests before next.
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
			Detail: "Requests of another origin may not change anything. Use a program or this server's own pages.",
		}
	}
	if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")) {
		return &Error{Status: http.StatusUnsupportedMediaType, Reason: NoJSON, Detail: "Send the body as JSON, with the header Content-Type: application/json."}
	}
	if coding := r.Header.Get("Content-Encoding"); r.ContentLength != 0 && coding != "" && !strings.EqualFold(coding, "identity") {
		return &Error{Status: http.StatusUnsupportedMediaType, Reason: Encoded, Detail: "Send the body uncompressed, without Content-Encoding."}
	}
	return nil
}

// reads reports whether a method changes nothing.
func reads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// isJSON reports whether a media type is JSON, or a kind of it that a browser does not
// send to other origins without permission either.
func isJSON(contentType string) bool {
	if contentType == "application/json" { // almost always, and to parse it costs a map
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"))
}
