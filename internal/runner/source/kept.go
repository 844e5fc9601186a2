package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"workflowagent/internal/runner/fileid"
	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/workflow"
)

// A kept checkout consists of the files in the checkout's directory, without .git, and of git's files in
// another directory, [Keep.Git]:
//
//	pack/    the objects
//	index    git's list of the checkout's files and their times
//	shallow  the commits whose parents are missing; can be absent
//
// Everything else in .git is written anew for each job, because git runs commands that its files name, and
// follows the paths in them. A job can change these files, too. So each is compared with the ID that it had
// when the runner's own git had written it. The same holds for the checkout's files, which the next job's
// git compares with the times in the index.
const (
	dirPack     = "pack"
	fileIndex   = "index"
	fileShallow = "shallow"
)

// maxPacks limits the packs of a kept checkout. Each fetch of new commits adds one, and many make git slow.
const maxPacks = 40

// keptRef makes git offer the kept commit to the server.
const keptRef = "refs/workflow/kept"

var packPattern = regexp.MustCompile(`^pack-[0-9a-f]{40,64}\.(pack|idx|rev)$`)

// Kept describes a checkout that a workspace keeps. It contains no secret.
type Kept struct {
	// Origin is a digest of the repository's address and of the settings that decide what is fetched.
	Origin string `json:"origin"`
	Commit string `json:"commit"`
	// Packs are the files in pack, and Files are the others.
	Packs []fileid.ID `json:"packs"`
	Files []fileid.ID `json:"files"`
}

// Keep makes [Git.Fetch] use and prepare a kept checkout.
type Keep struct {
	Git  string // directory of git's files
	Kept *Kept  // what it contains; nil: nothing
	// Dependencies keeps directories such as node_modules that contain no files of the repository.
	Dependencies bool
}

// origin returns the digest of the source's repository and settings.
func origin(repo *workflow.Repository, s workflow.GitSource) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %t %t %t", repo.Name(), s.Depth, s.Tags, s.LFS, s.Submodules))
	return hex.EncodeToString(sum[:])
}

// keepable reports whether a checkout of the source can be kept. The files of Git LFS and of submodules
// are not in the index.
func keepable(s workflow.GitSource) bool { return !s.LFS && !s.Submodules }

// reusable returns the reason why the kept checkout cannot be used for a revision, or "".
func (k *Keep) reusable(repo *workflow.Repository, s workflow.GitSource, want revision) string {
	switch {
	case k.Kept.Origin != origin(repo, s):
		return "the repository or its settings changed"
	case want.commit != "" && !want.isFullHash():
		// The commit could be one that only the kept objects contain.
		return "the settings name an abbreviated commit"
	case want.commit != "" && s.Depth == workflow.WholeHistory:
		return "with the whole history, git does not ask the server for a commit that it has"
	}
	return ""
}

// blames reports whether a failure can be the fault of the kept checkout.
func blames(err error) bool {
	switch classify(err) {
	case failureNetwork, failureAuth, failureNoRepo, failureNoRef, failureCertificate, failureHostKey, failureSSHMissing, failureKey:
		return false
	}
	return !isRedirect(err)
}

// adopt creates a new repository in the checkout's directory and moves the kept files of git into it.
func adopt(ctx context.Context, git *commandLine, from string, kept *Kept) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	packs, err := root.OpenRoot(dirPack)
	if err != nil {
		return err
	}
	defer packs.Close() // opened for reading only
	if err := errors.Join(fileid.Check(root, kept.Files), fileid.Check(packs, kept.Packs)); err != nil {
		return err
	}
	if names, err := dirtree.Names(ctx, packs, "."); err != nil || len(names) != len(kept.Packs) {
		return errors.Join(err, fmt.Errorf("%d files in %s instead of %d", len(names), dirPack, len(kept.Packs)))
	}
	if err := reinit(ctx, git, kept.Commit); err != nil {
		return err
	}
	to := filepath.Join(git.dir, ".git")
	if err := os.Remove(filepath.Join(to, "objects", dirPack)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(filepath.Join(from, dirPack), filepath.Join(to, "objects", dirPack)); err != nil {
		return err
	}
	for _, file := range kept.Files {
		if err := os.Rename(filepath.Join(from, file.Name), filepath.Join(to, file.Name)); err != nil {
			return err
		}
	}
	_, err = git.run(ctx, "update-ref", keptRef, kept.Commit)
	return err
}

// reinit replaces .git in the checkout's directory by that of a new repository that can contain the commit.
func reinit(ctx context.Context, git *commandLine, commit string) error {
	checkout, err := os.OpenRoot(git.dir)
	if err != nil {
		return err
	}
	defer checkout.Close() // opened for reading only
	if err := dirtree.Remove(ctx, checkout, ".git"); err != nil {
		return err
	}
	format := "sha1"
	if len(commit) == 64 {
		format = "sha256"
	}
	_, err = git.run(ctx, "init", "--quiet", "--template=", "--object-format="+format)
	return err
}

// record copies the files of git that a job changes to the directory to, and returns the description of
// the checkout. It must be called before the job's own steps.
func record(ctx context.Context, git *commandLine, to, origin, commit string) (*Kept, error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return nil, err
	}
	defer root.Close() // files are closed one by one
	if err := dirtree.RemoveEntries(ctx, root, ".", func(string) bool { return false }); err != nil {
		return nil, err
	}
	from, err := os.OpenRoot(filepath.Join(git.dir, ".git"))
	if err != nil {
		return nil, err
	}
	defer from.Close() // opened for reading only
	kept := &Kept{Origin: origin, Commit: commit}
	for _, name := range []string{fileIndex, fileShallow} {
		err := copyFile(from, root, name)
		if errors.Is(err, fs.ErrNotExist) && name == fileShallow {
			continue
		}
		if err != nil {
			return nil, err
		}
		id, err := fileid.Of(root, name)
		if err != nil {
			return nil, err
		}
		kept.Files = append(kept.Files, id)
	}
	kept.Packs, err = packIDs(ctx, from, filepath.Join("objects", dirPack))
	return kept, err
}

// copyFile copies a file with its time of modification, from which git concludes which files of the
// checkout could have changed unnoticed.
func copyFile(from, to *os.Root, name string) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close() // opened for reading only
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return to.Chtimes(name, time.Time{}, info.ModTime())
}

func packIDs(ctx context.Context, root *os.Root, dir string) ([]fileid.ID, error) {
	packs, err := root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer packs.Close() // opened for reading only
	names, err := dirtree.Names(ctx, packs, ".")
	if err != nil {
		return nil, err
	}
	var ids []fileid.ID
	for _, name := range names {
		if !packPattern.MatchString(name) {
			continue
		}
		id, err := fileid.Of(packs, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// received returns the bytes in packs that before does not contain.
func received(before *Kept, after []fileid.ID) (bytes int64) {
	old := map[string]bool{}
	if before != nil {
		for _, file := range before.Packs {
			old[file.Name] = true
		}
	}
	for _, file := range after {
		if !old[file.Name] && strings.HasSuffix(file.Name, ".pack") {
			bytes += file.Size
		}
	}
	return bytes
}
