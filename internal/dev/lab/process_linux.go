package lab

import "syscall"

// dieWithParent has the kernel end a child whose parent died.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
