package main

import (
	"errors"
	"syscall"
)

// portHint adds what to do when the address is taken.
func portHint(err error, addr, flag string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return withHint(err, "another process has %s; stop it, or name another address with %s", addr, flag)
	case errors.Is(err, syscall.EACCES):
		return withHint(err, "this user may not listen on %s; name a port above 1023 with %s", addr, flag)
	}
	return err
}
