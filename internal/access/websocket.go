package access

import "strings"

// Subprotocol is before a bearer token that is offered as a WebSocket's
// subprotocol.
const Subprotocol = "bearer."

// OrSubprotocol is a request's Authorization header or, without one, what it
// would be for the token that Sec-WebSocket-Protocol offers: a browser cannot
// set headers for a WebSocket.
func OrSubprotocol(authorization, protocols string) string {
	if authorization != "" {
		return authorization
	}
	for p := range strings.SplitSeq(protocols, ",") {
		if token, ok := strings.CutPrefix(strings.TrimSpace(p), Subprotocol); ok {
			return "Bearer " + token
		}
	}
	return ""
}
