package bench

import "syscall"

// dieWithParent lets no process outlive one that was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
