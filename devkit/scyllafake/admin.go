package scyllafake

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// admin serves the fault injection API over HTTP.
type admin struct {
	listener net.Listener
	server   *http.Server
}

// startAdmin listens on Config.AdminAddr, if it is set.
func (s *Server) startAdmin() error {
	if s.cfg.AdminAddr == "" {
		return nil
	}
	l, err := faults.Listen(s.cfg.AdminAddr)
	if err != nil {
		return err
	}
	s.admin = &admin{
		listener: l,
		server:   &http.Server{Handler: s.faults.Handler(), ReadHeaderTimeout: 5 * time.Second},
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if err := s.admin.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("fault injection API ended", "addr", l.Addr(), "err", err)
		}
	}()
	return nil
}

func (a *admin) close() {
	if a != nil {
		a.server.Close() //nolint:errcheck // nothing is lost with it
	}
}

// AdminAddr returns the TCP address of the fault injection API, "" without one.
func (s *Server) AdminAddr() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.listener.Addr().String()
}

// Faults returns the node's fault injector.
func (s *Server) Faults() *faults.Injector { return s.faults }
