// Package certificates loads TLS certificates from files that are renewed while a process
// runs, as cert-manager and SPIFFE helpers do. It does not renew them.
package certificates

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Pair is a certificate and its key in two files. It is safe for concurrent use.
type Pair struct {
	cert, key string
	log       *slog.Logger

	mu struct {
		sync.Mutex
		loaded *tls.Certificate
		seen   [2]version // of the files at the last read, successful or not
	}
}

// version identifies a state of a file.
type version struct {
	changed time.Time
	size    int64
}

// Load loads the certificate of two PEM files. log receives renewals and failures of them.
func Load(cert, key string, log *slog.Logger) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: log}
	seen, err := p.versions()
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		err = p.readLocked(seen)
	}
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return p, nil
}

// Server is for tls.Config.GetCertificate.
func (p *Pair) Server(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current(), nil }

// Client is for tls.Config.GetClientCertificate.
func (p *Pair) Client(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return p.current(), nil
}

// current returns the certificate in the files. Two stat calls cost little compared to the
// handshake. Files that cannot be loaded, as while only one of them is replaced, leave the
// certificate unchanged.
func (p *Pair) current() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, err := p.versions()
	if err != nil || seen == p.mu.seen {
		return p.mu.loaded
	}
	if err := p.readLocked(seen); err != nil {
		p.log.Warn("failed to load new TLS certificate, keeping the old one", "cert", p.cert, "err", err)
	} else {
		p.log.Info("TLS certificate reloaded", "cert", p.cert, "until", p.mu.loaded.Leaf.NotAfter)
	}
	return p.mu.loaded
}

func (p *Pair) versions() (seen [2]version, err error) {
	for i, path := range []string{p.cert, p.key} {
		info, err := os.Stat(path)
		if err != nil {
			return seen, err
		}
		seen[i] = version{info.ModTime(), info.Size()}
	}
	return seen, nil
}

// readLocked loads the files. They are not read again before they change.
func (p *Pair) readLocked(seen [2]version) error {
	p.mu.seen = seen
	loaded, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return err
	}
	p.mu.loaded = &loaded
	return nil
}
