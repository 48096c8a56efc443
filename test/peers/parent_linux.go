package peers

import "syscall"

// dieWithParent kills a peer when the test process ends without stopping it,
// for example by a test timeout.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
