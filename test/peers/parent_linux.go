package peers

import "syscall"

// dieWithParent kills a peer when the test process dies without stopping it,
// such as by a test timeout.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
