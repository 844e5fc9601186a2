package pod

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// unread returns how many bytes a pipe contains. Linux reports it at both ends.
func unread(file *os.File) (n int) {
	info, err := file.Stat()
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return 0
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return 0
	}
	_ = conn.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
			n = 0
		}
	})
	return n
}
