package access

import "strings"

// Subprotocol is the prefix of a bearer token that is offered as a WebSocket subprotocol.
const Subprotocol = "bearer."

// OrSubprotocol returns the Authorization header or, without one, its equivalent for the
// token in Sec-WebSocket-Protocol, because browsers cannot set headers for a WebSocket.
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
