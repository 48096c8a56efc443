package scyllafake

import (
	"bytes"
	"crypto/subtle"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/wire"
)

const passwordAuthenticator = "org.apache.cassandra.auth.PasswordAuthenticator"

// startup executes STARTUP.
func (c *conn) startup(req request) {
	options, err := wire.ReadStartup(req.header, req.body)
	if err != nil {
		c.fail(req, err)
		return
	}
	switch name := options[optCompression]; name {
	case "":
	case "lz4", "snappy":
		c.fail(req, cqlerr.Unsupported("the compression "+name))
		return
	default:
		c.fail(req, cqlerr.New(cqlerr.Protocol, "Unknown compression algorithm: %s", name))
		return
	}
	_, mark := options[optLWTMark]
	c.lwtMark.Store(mark)
	_, ids := options[optMetadataID]
	c.metadataID.Store(ids && c.s.version.HasMetadataID())
	_, routing := options[optRouting]
	c.routing.Store(routing && c.s.version.HasTablets())
	if len(c.s.cfg.Users) > 0 {
		c.state = stateAuthentication
		c.answer(req, wire.OpAuthenticate, 0, func(b []byte) []byte {
			return wire.AppendAuthenticate(b, passwordAuthenticator)
		})
		return
	}
	c.state = stateReady
	c.ready(req)
}

func (c *conn) ready(req request) {
	c.answer(req, wire.OpReady, 0, func(b []byte) []byte { return b })
}

// authenticate checks a SASL PLAIN token: an optional identity, the name and
// the password, with a zero byte before each of the latter.
func (c *conn) authenticate(req request) {
	if c.state == stateReady {
		// Authentication is off. A real node without authentication accepts any token.
		c.answer(req, wire.OpAuthSuccess, 0, wire.AppendAuthSuccess)
		return
	}
	token, err := wire.ReadAuthResponse(req.header, req.body)
	if err != nil {
		c.fail(req, err)
		return
	}
	parts := bytes.Split(token, []byte{0})
	if len(parts) != 3 {
		c.fail(req, cqlerr.New(cqlerr.BadCredentials, "Password must not be null"))
		return
	}
	want, ok := c.s.cfg.Users[string(parts[1])]
	if subtle.ConstantTimeCompare([]byte(want), parts[2]) != 1 || !ok {
		c.fail(req, cqlerr.New(cqlerr.BadCredentials, "Username and/or password are incorrect"))
		return
	}
	user := string(parts[1])
	c.user.Store(&user)
	c.state = stateReady
	c.answer(req, wire.OpAuthSuccess, 0, wire.AppendAuthSuccess)
}
