package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/lab/cluster/layout"
)

// hidden are the directories in which Kubernetes, containerd and CNI plugins keep files at paths that no setting
// changes.
var hidden = []string{"/run", "/var/lib", "/var/log"}

// inside is the first process of the namespaces.
func inside(dir string) error {
	var place layout.Place
	if err := json.NewDecoder(os.NewFile(3, "keeper")).Decode(&place); err != nil {
		return fmt.Errorf("waiting for the network: %w", err)
	}
	if err := mount(dir); err != nil {
		return err
	}
	if err := configure(place); err != nil {
		return err
	}
	control, err := net.Listen("unix", layout.Socket(dir)) //nolint:noctx // Listen does not block.
	if err != nil {
		return fmt.Errorf("opening the control socket: %w", err)
	}
	programs := newPrograms(dir)
	go programs.reap()
	server := &http.Server{Handler: programs, ReadHeaderTimeout: time.Minute}
	return server.Serve(control)
}

func mount(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating the mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := releaseContainers(dir); err != nil {
		return err
	}
	for _, path := range hidden {
		if strings.HasPrefix(dir, path+"/") {
			return fmt.Errorf("the directory of a cluster cannot be under %s; set TMPDIR to another directory", path)
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("hiding %s: %w", path, err)
		}
	}
	return nil
}

// releaseContainers unmounts what belongs to other containers of the machine. Their engine could not
// remove them while a copy of their mounts exists here.
func releaseContainers(dir string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	for line := range strings.Lines(string(table)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) < 2 {
			return fmt.Errorf("reading the mounts: cannot parse %q", line)
		}
		point := fields[4]
		if kind[0] != "overlay" && kind[0] != "nsfs" && kind[1] != "shm" || strings.HasPrefix(dir+"/", strings.TrimSuffix(point, "/")+"/") {
			continue
		}
		// A mount below one that was released is gone already.
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

func configure(place layout.Place) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", fmt.Sprintf("%s/%d", place.NodeIP(), layout.LinkBits), "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		// Pods find the API server at the address of its service.
		{"address", "add", layout.Service + "/32", "dev", "lo"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return errors.Join(errors.New("forwarding the packets of pods"), err)
	}
	return nil
}
