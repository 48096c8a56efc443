package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// setup contains the parameters of every peer.
type setup struct {
	Config
	// InnerPort is the port for connections between its parts, PlainPort that of a secure
	// broker to itself.
	InnerPort, PlainPort int

	name      string
	libs      string // where its jars are
	file      string // its configuration
	temporary bool   // Dir is
}

// newSetup gives a peer a directory and ports, unless it has them.
func newSetup(name string, cfg Config) (*setup, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &setup{Config: cfg, name: name}
	if s.temporary, err = directory(name, &s.Config); err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	if s.Port == 0 {
		s.Port = ports[0]
	}
	s.InnerPort, s.PlainPort = ports[1], ports[2]
	return s, nil
}

// prepare gets the peer's jars and writes its configuration, to a file of the
// template's name.
func (s *setup) prepare(ctx context.Context, form *template.Template) (err error) {
	if s.libs, err = jars(ctx, s.Cache, s.name); err != nil {
		return err
	}
	s.file = filepath.Join(s.Dir, form.Name())
	f, err := os.Create(s.file)
	if err != nil {
		return err
	}
	if err := errors.Join(form.Execute(f, s), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.file, err)
	}
	return nil
}
