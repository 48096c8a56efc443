package admin

import (
	"context"
	"net/http"
)

type remoteKey struct{}

// withRemote adds the client address to the context, for the audit trail.
func withRemote(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), remoteKey{}, r.RemoteAddr)))
	})
}

func remoteAddress(ctx context.Context) string {
	remote, _ := ctx.Value(remoteKey{}).(string)
	return remote
}
