//go:build !linux

package peers

import "syscall"

// dieWithParent does nothing: only Linux can bind a process to its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
