package update

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/host/release"
	"workflowagent/internal/sys/ancestors"
)

const (
	versionsDir = "versions"
	currentLink = "current"
	provenLink  = "proven"    // link to the version that worked last
	incomingDir = ".incoming" // private directory of an update in progress
	rootLock    = ".update.lock"

	// SeenFile contains the newest known state of the mirror, for manual updates.
	SeenFile = "releases-seen.json"
	// ManualStage is the directory into which a manual update downloads a release.
	ManualStage = ".download"
)

// Installation is an installation that can be updated. Root contains the files of each release in
// versions/VERSION, and a link named current to the release in use. The programs in Root are links
// through current, so replacing that link replaces all programs together.
type Installation struct {
	Root    string // absolute path without symbolic links
	Version string // version of the executable that led to the installation
}

// Find returns the installation that contains an executable. If a package manager owns the
// executable, the error is a [*PackagedError]. All other errors contain a remedy.
func Find(ctx context.Context, executable string) (Installation, error) {
	path, err := filepath.Abs(executable)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return Installation{}, fmt.Errorf("finding the installation of %s: %w", executable, err)
	}
	dir := filepath.Dir(path)
	root := filepath.Dir(filepath.Dir(dir))
	if filepath.Base(filepath.Dir(dir)) == versionsDir && release.CheckVersion(filepath.Base(dir)) == nil {
		if info, err := os.Lstat(filepath.Join(root, currentLink)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return Installation{Root: root, Version: filepath.Base(dir)}, nil
		}
	}
	if packaged := owner(ctx, path); packaged != nil {
		return Installation{}, packaged
	}
	return Installation{}, fmt.Errorf("%s was not installed by install.sh, so it cannot update itself: install the agent with install.sh, or replace this file by hand", path)
}

// FindOwn returns the installation of the running program. It is like [Find].
func FindOwn(ctx context.Context) (Installation, error) {
	program, err := os.Executable()
	if err != nil {
		return Installation{}, fmt.Errorf("finding the agent's own binary: %w", err)
	}
	return Find(ctx, program)
}

// Current returns the version to which the link current points.
func (i Installation) Current() (string, error) {
	target, err := os.Readlink(filepath.Join(i.Root, currentLink))
	if err != nil {
		return "", fmt.Errorf("reading the current version: %w", err)
	}
	dir, version := filepath.Split(filepath.Clean(target))
	if dir != versionsDir+"/" || release.CheckVersion(version) != nil {
		return "", fmt.Errorf("%s names %s and not a version below %s: run install.sh again", filepath.Join(i.Root, currentLink), target, versionsDir)
	}
	return version, nil
}

// Updater returns the path of the program that applies updates. The program belongs to the version
// that worked last, because a new version may be broken. [Installation.Prove] creates the link in
// this path.
func (i Installation) Updater() string {
	return filepath.Join(i.Root, provenLink, release.Program)
}

// Prove records that the current version works. It does nothing during an update.
func (i Installation) Prove() error {
	err := i.locked(func(root *os.Root) error {
		version, err := i.Current()
		if err != nil || i.Pending() {
			return err
		}
		return point(root, provenLink, version)
	})
	if errors.Is(err, ErrBusy) {
		return nil // the other update determines which version works
	}
	return err
}

// checkOwner returns an error if other users could replace the service's program.
func (i Installation) checkOwner() error {
	us := os.Geteuid()
	if us == 0 { // a user who can rename a parent directory can replace the whole installation
		err := ancestors.Walk(filepath.Dir(i.Root), func(at string, mode fs.FileMode, stat *syscall.Stat_t) error {
			return checkDir(at, mode, stat, us, true)
		})
		if err != nil {
			return err
		}
	}
	for _, dir := range []string{i.Root, filepath.Join(i.Root, versionsDir)} {
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		if err := checkDir(dir, info.Mode(), stat, us, false); err != nil {
			return err
		}
	}
	return nil
}

func checkDir(path string, mode fs.FileMode, stat *syscall.Stat_t, us int, above bool) error {
	if int(stat.Uid) != us {
		return fmt.Errorf("%s belongs to the user %d, not to the current user (%d): %w", path, stat.Uid, us, fs.ErrPermission)
	}
	others := mode.Perm() & 0o022
	if us != 0 {
		others &= 0o002 // ignore the group's permission: on many systems, each user has a private group
	}
	if others != 0 && (!above || mode&fs.ModeSticky == 0) {
		return fmt.Errorf("%s can be changed by other users (mode %v): remove that right with chmod go-w", path, mode.Perm())
	}
	return nil
}

// PackagedError reports that a program belongs to a package manager.
type PackagedError struct {
	Path    string
	Manager string // dpkg, rpm or Homebrew
	Package string
	Command string // the command that updates the package
}

func (e *PackagedError) Error() string {
	return fmt.Sprintf("%s belongs to the package %s of %s, which keeps it up to date: run %s", e.Path, e.Package, e.Manager, e.Command)
}

// Removal returns the command that removes the package.
func (e *PackagedError) Removal() string {
	switch e.Manager {
	case "dpkg":
		return "sudo apt-get remove " + e.Package
	case "rpm":
		return "sudo dnf remove " + e.Package
	}
	return "brew uninstall " + e.Package
}

// askTime limits a package manager's query, because the package database can be locked.
const askTime = 20 * time.Second

// owner returns a [*PackagedError] if a package owns the file, and nil otherwise. The path must not
// contain symbolic links.
func owner(ctx context.Context, path string) error {
	parts := strings.Split(path, "/")
	if i := slices.Index(parts, "Cellar"); i > 0 && i+1 < len(parts) {
		return &PackagedError{Path: path, Manager: "Homebrew", Package: parts[i+1], Command: "brew upgrade " + parts[i+1]}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if out, err := ask(ctx, "dpkg-query", "-S", "--", path); err == nil {
		// The output is "package:arch: /path" or "package, package: /path".
		name, _, _ := strings.Cut(out, ": ")
		name, _, _ = strings.Cut(name, ",")
		name, _, _ = strings.Cut(name, ":")
		return &PackagedError{Path: path, Manager: "dpkg", Package: name, Command: "sudo apt-get update && sudo apt-get install --only-upgrade " + name}
	}
	if name, err := ask(ctx, "rpm", "-qf", "--queryformat", `%{NAME}\n`, "--", path); err == nil {
		name, _, _ = strings.Cut(name, "\n")
		command := "sudo dnf upgrade " + name
		if _, err := exec.LookPath("dnf"); err != nil {
			if _, err := exec.LookPath("zypper"); err == nil {
				command = "sudo zypper update " + name
			}
		}
		return &PackagedError{Path: path, Manager: "rpm", Package: name, Command: command}
	}
	return nil
}

// ask returns the output of a package manager's query. If the program is missing, ask returns an
// error.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// executing reports whether a process, such as an agent or a job's runner, is executing a program
// of the version.
func executing(root *os.Root, version string) bool {
	dir := filepath.Join(root.Name(), versionsDir, version) + "/"
	for _, path := range executables() {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	// Some accounts cannot see other users' processes, but no process can open a running program
	// for writing.
	for _, name := range release.Programs() {
		f, err := root.OpenFile(versionsDir+"/"+version+"/"+name, os.O_WRONLY, 0)
		if errors.Is(err, syscall.ETXTBSY) {
			return true
		}
		if err == nil {
			_ = f.Close()
		}
	}
	return false
}

// executables returns the paths of the programs that the visible processes execute.
func executables() []string {
	var paths []string
	entries, err := filepath.Glob("/proc/[0-9]*/exe")
	if err == nil && len(entries) > 0 {
		for _, entry := range entries {
			if path, err := os.Readlink(entry); err == nil {
				paths = append(paths, path)
			}
		}
		return paths
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	out, _ := ask(ctx, "ps", "-axo", "comm=") // if ps fails, no process is visible
	return strings.Split(out, "\n")
}
