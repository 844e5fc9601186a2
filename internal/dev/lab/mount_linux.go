package lab

import "golang.org/x/sys/unix"

func mountOverlay(dir, options string) error {
	return unix.Mount("overlay", dir, "overlay", 0, options)
}

// unmount detaches a mount. The kernel removes the mount when it is no longer used.
func unmount(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }
