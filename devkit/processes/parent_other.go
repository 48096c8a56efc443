//go:build !linux

package processes

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
