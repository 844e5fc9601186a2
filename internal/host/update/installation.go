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

	"workflowagent/internal/host/ancestors"
	"workflowagent/internal/host/release"
)

const (
	versionsDir = "versions"
	currentLink = "current"
	provenLink  = "proven"    // to the version that worked last
	incomingDir = ".incoming" // of an update in progress
	rootLock    = ".update.lock"

	// SeenFile is the memory of an update by hand: the newest seen state of the mirror.
	SeenFile = "releases-seen.json"
	// ManualStage is the directory into which an update by hand downloads.
	ManualStage = ".download"
)

// Installation is an updatable installation: Root holds the files of each release in
// versions/VERSION, and the link current to the one in use. The programs in Root are links through
// current, so replacing that link replaces all of them.
type Installation struct {
	Root    string // absolute and without links
	Version string // of the executable from which it was found
}

// Find returns the installation of an executable. If a package manager owns the file, the error is
// a [*PackagedError]; other errors state what to do.
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

// FindOwn returns the installation of the running program, as [Find] does.
func FindOwn(ctx context.Context) (Installation, error) {
	program, err := os.Executable()
	if err != nil {
		return Installation{}, fmt.Errorf("finding the agent's own binary: %w", err)
	}
	return Find(ctx, program)
}

// Current returns the version that the link current names.
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

// Updater returns the path of the program that applies updates: the program of the version that
// worked last, because a new version may be broken. [Installation.Prove] creates the link.
func (i Installation) Updater() string {
	return filepath.Join(i.Root, provenLink, release.Program)
}

// Prove records that the current version works, unless an update is in progress.
func (i Installation) Prove() error {
	err := i.locked(func(root *os.Root) error {
		version, err := i.Current()
		if err != nil || i.Pending() {
			return err
		}
		return point(root, provenLink, version)
	})
	if errors.Is(err, ErrBusy) {
		return nil // that update decides which version works
	}
	return err
}

// checkOwner rejects an installation in which other users could replace the service's program.
func (i Installation) checkOwner() error {
	us := os.Geteuid()
	if us == 0 { // a user who can rename a parent directory can replace all of it
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
		others &= 0o002 // many systems give each user a private group
	}
	if others != 0 && (!above || mode&fs.ModeSticky == 0) {
		return fmt.Errorf("%s can be changed by other users (mode %v): remove that right with chmod go-w", path, mode.Perm())
	}
	return nil
}

// PackagedError reports a program that belongs to a package manager.
type PackagedError struct {
	Path    string
	Manager string // dpkg, rpm or Homebrew
	Package string
	Command string // that updates it
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

// askTime is the timeout of a package manager's query, whose database may be locked.
const askTime = 20 * time.Second

// owner returns a [*PackagedError] if a package owns the file, or nil. The path has no links.
func owner(ctx context.Context, path string) error {
	parts := strings.Split(path, "/")
	if i := slices.Index(parts, "Cellar"); i > 0 && i+1 < len(parts) {
		return &PackagedError{Path: path, Manager: "Homebrew", Package: parts[i+1], Command: "brew upgrade " + parts[i+1]}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if out, err := ask(ctx, "dpkg-query", "-S", "--", path); err == nil {
		// "package:arch: /path", or "package, package: /path".
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

// ask runs a query of a package manager. A missing program is an error.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// executing reports whether an agent, or the runner of a job, runs a program of a version.
func executing(root *os.Root, version string) bool {
	dir := filepath.Join(root.Name(), versionsDir, version) + "/"
	for _, path := range executables() {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	// Some accounts cannot see other users' processes, but no process can write to a running program.
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

// executables returns the programs of the visible processes.
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
	out, _ := ask(ctx, "ps", "-axo", "comm=") // without it, no process is visible
	return strings.Split(out, "\n")
}
