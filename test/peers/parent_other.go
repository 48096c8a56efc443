//go:build !linux

package peers

import "syscall"

// dieWithParent does nothing here: only Linux can tie a process to its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
