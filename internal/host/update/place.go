package update

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"workflowagent/internal/host/release"
)

// FlatVersion is the version under which programs are kept that an older installer put directly
// into the root.
const FlatVersion = "v0.0.0-flat"

// links returns the names of the links in the root of an installation that lead to its current
// version.
func links() []string { return append(release.Programs(), release.OldName) }

// OpenInstallation returns the installation in a directory. The directory may be missing or empty.
// OpenInstallation returns an error if the directory contains files, but neither an installation
// nor one of configurations, the files that an uninstall leaves.
func OpenInstallation(dir string, configurations []string) (Installation, error) {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	i := Installation{Root: dir}
	if _, err := os.Lstat(filepath.Join(dir, currentLink)); err == nil {
		i.Version, err = i.Current()
		return i, err
	}
	if i.flat() {
		i.Version = FlatVersion
		return i, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return i, err
	}
	for _, name := range append([]string{versionsDir}, configurations...) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return i, nil
		}
	}
	if len(entries) > 0 {
		return i, fmt.Errorf("%s contains files that are not an agent: choose a new directory with --dir", dir)
	}
	return i, nil
}

// NewerThan reports whether the installed version is newer than version.
func (i Installation) NewerThan(version string) bool {
	order, err := compare(i.Version, version)
	return err == nil && order > 0
}

// flat reports whether an older installer has put the programs directly into the root.
func (i Installation) flat() bool {
	info, err := os.Lstat(filepath.Join(i.Root, release.Program))
	return err == nil && info.Mode().IsRegular()
}

// Place installs a staged release directly, for install.sh. It can install into an empty directory,
// replace another version, or repair the damaged files of the same version.
//
// All programs change with a single rename. After an error or a crash, the installation is either
// unchanged or complete, and the next call removes leftovers. The caller must restart a service,
// and can revert the installation with [Installation.Revert]. Place returns [ErrBusy] during an
// update.
func (i Installation) Place(ctx context.Context, keys release.Keys, stage, version string) error {
	if err := release.CheckVersion(version); err != nil {
		return err
	}
	created, err := makeDirs(filepath.Join(i.Root, versionsDir))
	if err == nil {
		a := &Applier{Installation: i, Keys: keys}
		err = i.locked(func(root *os.Root) error {
			err := a.place(ctx, root, stage, version)
			if err != nil && i.Version == "" {
				err = errors.Join(err, removeAll(root, append(links(), currentLink, versionsDir+"/"+version, rootLock)...))
			}
			return err
		})
	}
	if err == nil {
		return nil
	}
	for _, dir := range created {
		_ = os.Remove(dir) // fails if another program already uses the directory
	}
	return fmt.Errorf("installing %s into %s: %w", version, i.Root, explain(err))
}

// makeDirs creates a directory and any missing parents. It returns the created directories, the
// deepest first.
func makeDirs(dir string) (created []string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		created = append(created, at)
	}
	return created, os.MkdirAll(dir, 0o755)
}

func removeAll(root *os.Root, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, root.RemoveAll(name))
	}
	return errors.Join(errs...)
}

func (a *Applier) place(ctx context.Context, root *os.Root, path, version string) error {
	if err := clean(root); err != nil {
		return err
	}
	stage, err := openIntake(path)
	if err != nil {
		return err
	}
	defer func() { _ = stage.Close() }()
	err = a.takeIn(ctx, root, stage, version)
	if err == nil && a.Version == FlatVersion && a.flat() {
		err = a.adopt(root)
	}
	if err == nil {
		err = put(root, version)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return errors.Join(err, root.RemoveAll(incomingDir))
	}
	for _, name := range links() {
		if err := setLink(root, name, currentLink+"/"+name); err != nil {
			return err
		}
	}
	// If the journal remained, recovering the interrupted update would swap the versions again.
	if err := forget(root); err != nil {
		return err
	}
	if err := point(root, currentLink, version); err != nil {
		return err
	}
	step("current")
	proven, _ := root.Readlink(provenLink) // after a first installation, no version is proven
	if a.Version != version {
		_ = prune(root, version, a.Version, filepath.Base(proven)) // the next installation retries this
	}
	return nil
}

// adopt creates a version from the programs in the root, which the new release replaces immediately
// afterwards.
func (a *Applier) adopt(root *os.Root) error {
	dir := versionsDir + "/" + FlatVersion
	err := errors.Join(root.RemoveAll(dir), root.Mkdir(dir, 0o755))
	for _, name := range release.Programs() {
		if info, lerr := root.Lstat(name); lerr == nil && info.Mode().IsRegular() {
			err = errors.Join(err, root.Link(name, dir+"/"+name))
		}
	}
	err = errors.Join(err, root.Symlink(release.Program, dir+"/"+release.OldName), syncDir(root, dir))
	if err != nil {
		return err
	}
	return point(root, currentLink, FlatVersion)
}

// put moves the unpacked release to its final name. If that version already exists, put replaces
// its files one by one, so that no running program misses a file.
func put(root *os.Root, version string) error {
	from, to := incomingDir+"/"+unpackedDir, versionsDir+"/"+version
	var err error
	if info, lerr := root.Lstat(to); lerr != nil || !info.IsDir() {
		err = errors.Join(root.RemoveAll(to), root.Rename(from, to))
	} else {
		err = fs.WalkDir(root.FS(), from, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			target := to + strings.TrimPrefix(path, from)
			if d.IsDir() {
				return root.MkdirAll(target, 0o755)
			}
			return root.Rename(path, target)
		})
	}
	if err != nil {
		return err
	}
	err = errors.Join(syncDir(root, to), syncDir(root, versionsDir))
	step("placed")
	return errors.Join(err, root.RemoveAll(incomingDir))
}

// Revert makes an earlier version current again.
func (i Installation) Revert(version string) error {
	return i.locked(func(root *os.Root) error {
		return errors.Join(point(root, currentLink, version), root.RemoveAll(provenLink))
	})
}

// InUse reports whether a process is executing a program of the installation.
func (i Installation) InUse() (bool, error) {
	root, err := os.OpenRoot(i.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), versionsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, entry := range entries {
		if executing(root, entry.Name()) {
			return true, nil
		}
	}
	return false, err
}

// Remove removes the programs and all files of updates. It also removes the root if the root is
// then empty.
func (i Installation) Remove() error {
	if _, err := os.Lstat(i.Root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names := append(links(), currentLink, provenLink, versionsDir, SeenFile, ManualStage, incomingDir, JournalFile, JournalFile+".broken", failureFile, rootLock)
	for _, name := range names {
		names = append(names, next(name))
	}
	err := lockedDir(i.Root, rootLock, func(root *os.Root) error { return removeAll(root, names...) })
	if err == nil {
		_ = os.Remove(i.Root) // fails if the root is not empty
	}
	return err
}
