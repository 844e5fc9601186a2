package procs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Find returns a process.
func Find(pid int) (Process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	// The name in field 2 can contain any character, but the last closing parenthesis ends it.
	// Field 3 follows.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return Process{}, fmt.Errorf("unknown form of /proc/%d/stat", pid)
	}
	parent, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Process{}, fmt.Errorf("unknown form of /proc/%d/stat: %w", pid, err)
	}
	p := Process{PID: pid, Parent: parent, Session: session, Start: start, Zombie: f[0] == "Z" || f[0] == "X"}
	if p.Zombie && len(f) > 49 {
		p.Status, _ = strconv.Atoi(f[49]) // old kernels lack the field; 0 has the same meaning
	}
	return p, nil
}

// All returns all processes.
func All() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := Find(pid); err == nil { // if Find fails, the process has exited
			out = append(out, p)
		}
	}
	return out, nil
}
