package lab

import "syscall"

// dieWithParent makes the kernel send a child a SIGTERM when its parent dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
