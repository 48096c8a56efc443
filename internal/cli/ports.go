package cli

import (
	"errors"
	"syscall"
)

// PortHint adds a hint to the error of a listener: its address is in use or not permitted.
func PortHint(err error, addr, flag string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return WithHint(err, "another process uses %s; stop it, or set another address with %s", addr, flag)
	case errors.Is(err, syscall.EACCES):
		return WithHint(err, "this user may not listen on %s; set a port above 1023 with %s", addr, flag)
	}
	return err
}
