package procs

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Hidden reports whether the /proc of this process hides the processes of other users (proc(5), hidepid). It then also
// hides those of the own user that protect their memory, as runners do. Processes with CAP_SYS_PTRACE see all, which root
// can lack in a sandbox.
func Hidden() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return false, fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0 {
		return false, nil
	}
	groups, err := os.Getgroups()
	if err != nil {
		return false, fmt.Errorf("reading the groups of this process: %w", err)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("reading the mounts of this process: %w", err)
	}
	defer f.Close() // opened for reading only
	return hides(bufio.NewScanner(f), append(groups, os.Getegid()))
}

// hides reports whether a list of mounts (proc_pid_mountinfo(5)) contains a /proc that hides processes from the members of
// groups. The last mount covers the others.
func hides(mounts *bufio.Scanner, groups []int) (hidden bool, err error) {
	for mounts.Scan() {
		mount, super, _ := strings.Cut(mounts.Text(), " - ")
		at, options := strings.Fields(mount), strings.Fields(super)
		if len(at) < 5 || at[4] != "/proc" || len(options) < 3 || options[0] != "proc" {
			continue
		}
		hidden = false
		exempt := "0" // the group that sees all
		for option := range strings.SplitSeq(options[2], ",") {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "hidepid":
				hidden = value != "0" && value != "off"
			case "gid":
				exempt = value
			}
		}
		hidden = hidden && !slices.ContainsFunc(groups, func(gid int) bool { return strconv.Itoa(gid) == exempt })
	}
	if err := mounts.Err(); err != nil {
		return false, fmt.Errorf("reading the mounts of this process: %w", err)
	}
	return hidden, nil
}
