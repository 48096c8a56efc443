package access

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a TLS certificate in two files that are renewed while the process runs.
// It is safe for concurrent use.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu   sync.Mutex
	pair *tls.Certificate
	seen [2]version // of the files at the last read, successful or not
}

// version identifies a state of a file.
type version struct {
	changed time.Time
	size    int64
}

func newCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log}
	seen, err := c.look()
	if err == nil {
		err = c.read(seen)
	}
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return c, nil
}

// get is for tls.Config. Two stat calls cost little compared to the handshake. Files that
// cannot be loaded, as while only one of them is replaced, leave the certificate
// unchanged.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, err := c.look()
	if err != nil || seen == c.seen {
		return c.pair, nil
	}
	if err := c.read(seen); err != nil {
		c.log.Warn("failed to load new TLS certificate, keeping the old one", "cert", c.cert, "err", err)
	} else {
		c.log.Info("TLS certificate reloaded", "cert", c.cert, "until", c.pair.Leaf.NotAfter)
	}
	return c.pair, nil
}

func (c *certificate) look() (seen [2]version, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return seen, err
		}
		seen[i] = version{info.ModTime(), info.Size()}
	}
	return seen, nil
}

// read loads the files. They are not read again before they change.
func (c *certificate) read(seen [2]version) error {
	c.seen = seen
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.pair = &pair
	return nil
}
