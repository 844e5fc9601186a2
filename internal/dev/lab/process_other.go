//go:build !linux

package lab

import "syscall"

// dieWithParent does nothing: only Linux has this.
func dieWithParent(*syscall.SysProcAttr) {}
