// Package access says who may use an HTTP API.
//
// A Gate turns the bearer token of a request into a Principal with a Role. A
// token is either one of the configuration's, which holds only its hash, or a
// JWT of an OpenID Connect issuer. Huma asks for the role that each operation
// names; an operation that names none is open to administrators alone. There are
// no cookies, so a page elsewhere cannot make a browser use somebody's rights;
// Browsers keeps it from using what somebody may do without any.
//
// Beside it stand what every such API needs: request ids, headers that keep
// browsers from doing anything with an answer, Proxies, which finds out who asked
// behind them, and Listen, which does not let
// tokens travel in the clear.
package access
