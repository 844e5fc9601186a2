package procs

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Hidden reports whether the /proc of this process hides the processes of other users. It then also hides those of the
// own user that protect their memory, as runners do. Root sees all.
func Hidden() (bool, error) {
	if os.Geteuid() == 0 {
		return false, nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("reading the mounts of this process: %w", err)
	}
	defer f.Close() // opened for reading only
	return hides(bufio.NewScanner(f))
}

// hides reports whether a list of mounts (proc_pid_mountinfo(5)) contains a /proc that hides processes. The last mount
// covers the others.
func hides(mounts *bufio.Scanner) (hidden bool, err error) {
	for mounts.Scan() {
		mount, super, _ := strings.Cut(mounts.Text(), " - ")
		at, options := strings.Fields(mount), strings.Fields(super)
		if len(at) < 5 || at[4] != "/proc" || len(options) < 3 || options[0] != "proc" {
			continue
		}
		hidden = slices.ContainsFunc(strings.Split(options[2], ","), func(option string) bool {
			mode, ok := strings.CutPrefix(option, "hidepid=")
			return ok && mode != "0" && mode != "off"
		})
	}
	if err := mounts.Err(); err != nil {
		return false, fmt.Errorf("reading the mounts of this process: %w", err)
	}
	return hidden, nil
}
