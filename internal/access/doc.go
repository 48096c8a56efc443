// Package access authenticates and authorizes the requests of an HTTP API.
//
// A Gate maps the bearer token of a request to a Principal with a Role. A token is
// either in the configuration, which contains only its hash, or a JWT of an OpenID
// Connect issuer. Huma checks the role that an operation needs; an operation without a
// role needs the role admin. A token with the role consumer receives and settles messages of
// the subscriptions that it names, and nothing else. There are no cookies, so a page of another origin cannot
// use the rights of a user through the browser. Browsers refuses such requests to
// servers without tokens.
//
// The package also has what every such API needs: request ids, security headers,
// Proxies, which determines the client address behind reverse proxies, and Listen,
// which refuses to receive tokens unencrypted.
package access
