package lab

import "golang.org/x/sys/unix"

// mountOverlay mounts an overlay with these options.
func mountOverlay(dir, options string) error {
	return unix.Mount("overlay", dir, "overlay", 0, options)
}

// unmount ends a mount as soon as nobody uses it any more.
func unmount(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }
