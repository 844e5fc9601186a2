package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/cluster/layout"
	"workflowagent/internal/sys/filelock"
)

const (
	groupRoot = "/sys/fs/cgroup"
	// groupPatience is how long the kernel may take to forget the processes of a control group.
	groupPatience = 10 * time.Second
)

// keep runs a cluster's processes until standard input is closed. It prints the cluster's place as JSON once the
// first process runs and the network exists, and removes dir at the end.
func keep(dir string) (err error) {
	// The kernel ties the first process to the thread that started it.
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	place, release, err := choosePlace()
	if err != nil {
		return err
	}
	defer release()
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	defer func() { err = errors.Join(err, removeGroups(place)) }()
	if err := errors.Join(removeLink(place), removeGroups(place), makeGroups(place)); err != nil {
		return fmt.Errorf("removing the remains of a cluster: %w", err)
	}

	ready, connected, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = connected.Close() }()
	//nolint:noctx // The keeper ends it.
	first := exec.Command("/proc/self/exe", "inside", dir)
	first.Env = append(os.Environ(), "PATH="+layout.Path)
	first.Stderr = os.Stderr
	first.ExtraFiles = []*os.File{ready}
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		// The first process of a namespace ignores most signals from inside it, but not SIGKILL from outside.
		Pdeathsig: syscall.SIGKILL,
	}
	err = first.Start()
	_ = ready.Close()
	if err != nil {
		return fmt.Errorf("creating the namespaces of a cluster: %w", err)
	}
	ended := make(chan struct{})
	var end error // valid once ended is closed
	go func() {
		defer close(ended)
		end = first.Wait()
	}()
	defer func() {
		_ = first.Process.Kill()
		<-ended
		err = errors.Join(err, removeLink(place))
	}()
	if err := connect(place, first.Process.Pid); err != nil {
		return err
	}
	if err := json.NewEncoder(connected).Encode(place); err != nil {
		return fmt.Errorf("reporting the network to the first process: %w", err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(place); err != nil {
		return fmt.Errorf("reporting the place: %w", err)
	}

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-closed:
	case <-stop:
	case <-ended:
		return fmt.Errorf("the first process of a cluster ended: %w", end)
	}
	return nil
}

// choosePlace locks the first place that no other keeper holds.
func choosePlace() (place layout.Place, release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(place.Lock()), 0o755); err != nil {
		return place, nil, err
	}
	for place.Number = range layout.Count {
		file, err := os.OpenFile(place.Lock(), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return place, nil, fmt.Errorf("choosing a place for a cluster: %w", err)
		}
		lock, err := filelock.Try(file)
		if err == nil {
			return place, lock.Release, nil
		}
		if _, held := errors.AsType[*filelock.HeldError](err); !held {
			return place, nil, fmt.Errorf("choosing a place for a cluster: %w", err)
		}
	}
	return place, nil, fmt.Errorf("all %d places for clusters are in use", layout.Count)
}

// connect links the machine with the namespace of the first process. The link disappears with that namespace.
func connect(place layout.Place, pid int) error {
	link, host := place.Link(), place.HostIP()
	for _, args := range [][]string{
		{"link", "add", "name", link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)},
		{"address", "add", fmt.Sprintf("%s/%d", host, layout.LinkBits), "dev", link},
		{"link", "set", link, "up"},
		{"route", "add", place.Pods().String(), "via", place.NodeIP().String(), "src", host.String()},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

func removeLink(place layout.Place) error {
	if _, err := os.Stat("/sys/class/net/" + place.Link()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := ip("link", "delete", place.Link()); err != nil {
		// The kernel may have removed it in the meantime, with the namespace of its other end.
		if _, statErr := os.Stat("/sys/class/net/" + place.Link()); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return nil
}

// hierarchies returns the directories above the cluster's control groups: each controller's own one in version 1,
// or the only one in version 2.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(groupRoot, "cgroup.controllers")); err == nil {
		return []string{groupRoot}, nil
	}
	found, err := filepath.Glob(filepath.Join(groupRoot, "*", "cgroup.procs"))
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	if err == nil && len(found) == 0 {
		err = errors.New("no control groups are mounted at " + groupRoot)
	}
	return found, err
}

func makeGroups(place layout.Place) error {
	dirs, err := hierarchies()
	for _, dir := range dirs {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, place.Group()), 0o755))
	}
	return err
}

func removeGroups(place layout.Place) error {
	dirs, err := hierarchies()
	for _, dir := range dirs {
		err = errors.Join(err, removeGroup(filepath.Join(dir, place.Group())))
	}
	return err
}

// removeGroup removes a control group and all below it. The kernel may take a while after the end of the last
// process.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(dir, entry.Name())))
		}
	}
	if err != nil {
		return err
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for begin := time.Now(); ; <-ticker.C {
		err := syscall.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, syscall.EBUSY) || time.Since(begin) > groupPatience:
			return fmt.Errorf("removing the control group %s: %w", dir, err)
		}
	}
}
