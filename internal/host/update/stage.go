package update

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"workflowagent/internal/host/release"
)

// RequestFile is the name of the file that marks a stage as complete. It is created last, by a
// rename. Service managers watch for it.
const RequestFile = "request.json"

// stageLock is the name of the file in a stage that is locked while the stage is being written.
const stageLock = ".lock"

const downloadTime = time.Hour

// ErrBusy is returned if another update is in progress.
var ErrBusy = errors.New("another update is in progress")

// Staging describes the directory in which an [Applier] finds a release.
type Staging struct {
	Dir string // created if missing; must not contain other files
	// Explicit reports whether the operator requested this version. It is then installed even if it
	// failed recently.
	Explicit bool
	// Progress is called with the number of downloaded bytes. total is -1 if unknown. Progress can
	// be nil.
	Progress func(done, total int64)
}

// request is the content of [RequestFile]. The applier does not trust it.
type request struct {
	Version  string `json:"version"`
	Explicit bool   `json:"explicit,omitempty"`
}

// Stage downloads a release's checksum list, signature and archive. It checks the list's signature
// and the archive's checksum, stores the three files in the directory and adds a request. If the
// directory already contains the archive with the right checksum, Stage reuses it. After an error,
// no request exists.
func (f *Finder) Stage(ctx context.Context, c Candidate, s Staging) error {
	if c.found == nil {
		return errors.New("the candidate was not found by a finder")
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	err := os.MkdirAll(s.Dir, 0o755)
	if err == nil {
		err = lockedDir(s.Dir, stageLock, func(dir *os.Root) error { return f.stage(ctx, c, s, dir) })
	}
	if err != nil {
		return fmt.Errorf("downloading %s to %s: %w", c.Version, s.Dir, explain(err))
	}
	return nil
}

func (f *Finder) stage(ctx context.Context, c Candidate, s Staging, dir *os.Root) (err error) {
	names, err := f.wanted(c.Version)
	if err != nil {
		return err
	}
	archive := names[0]
	if err := sweep(dir, stageLock, archive); err != nil {
		return err
	}
	step("cleared")
	// Free the disk space: an interrupted download is useless, because the next download starts
	// from the beginning.
	defer func() {
		if err != nil {
			err = errors.Join(err, sweep(dir, stageLock))
		}
	}()

	sums, sign, err := f.sums(ctx, c)
	if err != nil {
		return err
	}
	want, err := checksum(f.Keys, sums, sign, archive)
	if err != nil {
		return err
	}
	if !same(dir, archive, want) {
		if err := dir.RemoveAll(archive); err != nil {
			return err
		}
		if err := f.download(ctx, c, dir, archive, want, s.Progress); err != nil {
			return err
		}
	}
	step("downloaded")
	for name, data := range map[string][]byte{names[1]: sums, names[2]: sign} {
		if err := writeFile(dir, name, data, 0o644); err != nil {
			return err
		}
	}
	step("signed")
	return store(dir, RequestFile, request{Version: c.Version, Explicit: s.Explicit})
}

// sums downloads the checksum list and its signature, whose asset IDs the search has found.
func (f *Finder) sums(ctx context.Context, c Candidate) (sums, sign []byte, err error) {
	var files [][]byte
	for _, link := range c.found.ValidationChain {
		body, err := c.source.DownloadReleaseAsset(ctx, c.found, link.ValidationAssetID)
		if err != nil {
			return nil, nil, fmt.Errorf("downloading %s: %w", link.ValidationAssetName, err)
		}
		data, err := readSmall(body)
		if err != nil {
			return nil, nil, fmt.Errorf("downloading %s: %w", link.ValidationAssetName, err)
		}
		files = append(files, data)
	}
	if len(files) != 2 {
		return nil, nil, errors.New("the release has no signed checksums")
	}
	return files[0], files[1], nil
}

// checksum returns the SHA-256 sum of an archive from a checksum list, after it has verified the
// list's signature. The archive's name contains the version, so the signature also covers the
// version.
func checksum(keys release.Keys, sums, sign []byte, archive string) ([32]byte, error) {
	if err := (signature{keys}).Validate(release.ChecksumsFile, sums, sign); err != nil {
		return [32]byte{}, err
	}
	list, err := release.ParseChecksums(sums)
	if err != nil {
		return [32]byte{}, err
	}
	want, ok := list[archive]
	if !ok {
		return want, fmt.Errorf("the signed %s does not list %s: it belongs to another release", release.ChecksumsFile, archive)
	}
	return want, nil
}

// errChanged is returned for an archive whose checksum differs from the signed checksum.
var errChanged = errors.New("its SHA-256 sum is not the signed one: the file was changed, or damaged by the download")

// download downloads the archive and computes its hash at the same time. go-selfupdate's validator
// would read the complete archive into memory.
func (f *Finder) download(ctx context.Context, c Candidate, dir *os.Root, name string, want [32]byte, progress func(done, total int64)) error {
	body, err := c.source.DownloadReleaseAsset(ctx, c.found, c.found.AssetID)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	total := int64(-1)
	if known, ok := body.(sized); ok {
		total = known.size
	} else if c.found.AssetByteSize > 0 {
		total = int64(c.found.AssetByteSize)
	}
	if total > maxArchive {
		return fmt.Errorf("%s: %w", name, errTooLarge)
	}
	to, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	if err := copyChecked(io.MultiWriter(to, &counter{progress: progress, total: total}), body, want); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return finish(to)
}

// copyChecked copies an archive. It returns [errChanged] if the archive's SHA-256 sum is not the
// expected one.
func copyChecked(to io.Writer, from io.Reader, want [32]byte) error {
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, hash), io.LimitReader(from, maxArchive+1))
	switch {
	case err != nil:
		return err
	case n > maxArchive:
		return errTooLarge
	case [32]byte(hash.Sum(nil)) != want:
		return errChanged
	}
	return nil
}

type counter struct {
	done, total int64
	progress    func(done, total int64)
}

func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
	return len(p), nil
}

// same reports whether the directory already contains the archive, from an earlier download.
func same(dir *os.Root, name string, want [32]byte) bool {
	f, err := openPlain(dir, name)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return copyChecked(io.Discard, f, want) == nil
}

// explain adds advice to an error that the operator can fix.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: make room (an update needs about 300 MB) and try again", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: run this as the owner of the installation, with sudo for a system installation", err)
	}
	return err
}
