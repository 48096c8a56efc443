package scyllafake

import (
	"context"
	"errors"
	"net"
)

// Server is a running node. It is safe for concurrent use.
type Server struct{}

// Start opens the data directory and returns a node that is listening.
func Start(cfg Config) (*Server, error) { return nil, errors.New("not written yet") }

// Addr is the TCP address of the ordinary port, "" without one.
func (s *Server) Addr() string { panic("not written yet") }

// Close stops the node: it refuses new connections, closes the open ones, and
// closes the data directory. Acknowledged writes are kept.
func (s *Server) Close() error { panic("not written yet") }

// Dial connects over memory. Client and server may live in one testing/synctest bubble.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) { panic("not written yet") }
