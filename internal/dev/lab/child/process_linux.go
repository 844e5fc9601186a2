package child

import "syscall"

// dieWithParent makes the kernel send the child SIGTERM when its parent dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
