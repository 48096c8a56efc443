package harness

import "syscall"

// dieWithParent lets no process outlive a test that was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
