package cli

import (
	"errors"
	"syscall"
)

// PortHint adds what to do when the address is taken.
func PortHint(err error, addr, flag string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return WithHint(err, "another process has %s; stop it, or name another address with %s", addr, flag)
	case errors.Is(err, syscall.EACCES):
		return WithHint(err, "this user may not listen on %s; name a port above 1023 with %s", addr, flag)
	}
	return err
}
