// Package access authenticates and authorizes the requests of an HTTP API.
//
// A Gate maps the bearer token of a request to a Principal with a Role. A token is
// either in the configuration, which contains only its hash, or a JWT of an OpenID
// Connect issuer. Huma checks the role that an operation needs; an operation without a
// role needs the role admin. A token with the role consumer receives and settles messages of
// the subscriptions that it names, and nothing else. A user of the console may sign in at
// the issuer instead and then has a session in a cookie, whose changes must come from the
// server's own pages. Browsers refuses requests of other origins to any server.
//
// The package also has what every such API needs: request ids, security headers,
// Proxies, which determines the client address behind reverse proxies, and Listen,
// which refuses to receive tokens unencrypted.
package access
