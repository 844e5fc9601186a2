package update

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/host/release"
	"workflowagent/internal/retry"
)

// maxEntries limits the number of entries in an archive.
const maxEntries = 1000

// Limits for the unpacked size, in bytes. Tests reduce them.
var (
	maxUnpacked int64 = 2 << 30
	maxFile     int64 = 512 << 20
)

var manPage = regexp.MustCompile(`^man/[A-Za-z0-9._-]+\.1$`)

// expected returns the mode of a known file of a release. It returns 0 for an unknown file, which
// is skipped, because a later release may add files. The modes in the archive are ignored.
func expected(name string) fs.FileMode {
	switch {
	case slices.Contains(release.Programs(), name):
		return 0o755
	case name == "pulumi-workflow-agent.yaml.sample", name == "LICENSE", manPage.MatchString(name):
		return 0o644
	}
	return 0
}

// unpack unpacks a release's archive into an empty directory and syncs the files. The archive's
// only top-level directory must be wrap. unpack rejects an archive, even a signed one, that could
// write outside the directory.
func unpack(archive io.Reader, wrap string, into *os.Root) error {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	limited := &io.LimitedReader{R: unzipped, N: maxUnpacked}
	reader := tar.NewReader(limited)
	for entries := 0; ; entries++ {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && limited.N <= 0 || entries > maxEntries {
			return errors.New("it contains more than any release")
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(reader, header, wrap, into); err != nil {
			return err
		}
	}
	if err := into.Symlink(release.Program, release.OldName); err != nil {
		return err
	}
	for _, name := range release.Programs() {
		if info, err := into.Lstat(name); err != nil || info.Size() == 0 {
			return fmt.Errorf("%s is missing or empty", name)
		}
	}
	if err := syncDir(into, "man"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(into, ".")
}

func unpackEntry(content io.Reader, header *tar.Header, wrap string, into *os.Root) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	whole := strings.TrimSuffix(header.Name, "/")
	name, inside := strings.CutPrefix(whole, wrap+"/")
	if !fs.ValidPath(whole) || !inside && whole != wrap {
		return fmt.Errorf("%q is not in the directory %s", header.Name, wrap)
	}
	mode := expected(name)
	switch header.Typeflag {
	case tar.TypeDir:
		return nil // a directory is created when a file needs it
	case tar.TypeSymlink:
		// The only link in a release is created at the end.
		if mode != 0 {
			return fmt.Errorf("%q is a link and should be a file", header.Name)
		}
		return nil
	case tar.TypeReg:
	default:
		return fmt.Errorf("%q is a special file (%q)", header.Name, header.Typeflag)
	}
	if mode == 0 {
		return nil
	}
	if header.Size > maxFile {
		return fmt.Errorf("%q has %d bytes, more than any file of a release", header.Name, header.Size)
	}
	if dir := path.Dir(name); dir != "." {
		if err := into.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := into.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	to, err := into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	if _, err := io.CopyN(to, content, header.Size); err != nil {
		return fmt.Errorf("%q: %w", header.Name, err)
	}
	// Set the mode regardless of the umask.
	if err := to.Chmod(mode); err != nil {
		return err
	}
	return finish(to)
}

// The names of entries in the private directory of an update in progress.
const (
	copiedArchive = "archive.tar.gz"
	unpackedDir   = "unpacked"
)

// openIntake opens a stage that can belong to another user. Neither the types nor the contents of
// its files are trusted.
func openIntake(path string) (*os.Root, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	after, err := dir.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

func readRequest(stage *os.Root) (request, error) {
	var r request
	err := load(stage, RequestFile, &r)
	if err == nil {
		err = release.CheckVersion(r.Version)
	}
	if err != nil {
		return request{}, fmt.Errorf("reading the request: %w", err)
	}
	return r, nil
}

// intake copies a version's archive from the stage, checks the copy, and unpacks it into the
// private directory.
func (a *Applier) intake(ctx context.Context, stage, private *os.Root, version string) error {
	archive, err := release.Archive(version, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return err
	}
	sums, err := readPlain(stage, release.ChecksumsFile)
	if err != nil {
		return err
	}
	sign, err := readPlain(stage, release.ChecksumsFile+release.SignatureSuffix)
	if err != nil {
		return err
	}
	want, err := checksum(a.Keys, sums, sign, archive)
	if err != nil {
		return err
	}
	from, err := openPlain(stage, archive)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := private.OpenFile(copiedArchive, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	if err := copyChecked(to, until{ctx, from}, want); err != nil {
		return fmt.Errorf("copying %s: %w", archive, err)
	}
	step("copied")
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := private.Mkdir(unpackedDir, 0o755); err != nil {
		return err
	}
	if err := private.Chmod(unpackedDir, 0o755); err != nil { // regardless of the umask
		return err
	}
	into, err := private.OpenRoot(unpackedDir)
	if err != nil {
		return err
	}
	defer func() { _ = into.Close() }()
	if err := unpack(until{ctx, to}, strings.TrimSuffix(archive, ".tar.gz"), into); err != nil {
		return fmt.Errorf("unpacking %s: %w", archive, err)
	}
	step("unpacked")
	return private.RemoveAll(copiedArchive)
}

// until is a reader that fails after its context is canceled.
type until struct {
	ctx context.Context //nolint:containedctx // the context of one copy
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

const tryTime = 30 * time.Second

// try runs the new program and checks the version that it reports.
func try(ctx context.Context, path, version string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var out []byte
	var err error
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		cmd := exec.CommandContext(ctx, path, "version")
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		cmd.Dir = "/"
		cmd.WaitDelay = time.Second
		out, err = cmd.Output()
		// A child process that was forked during the copy keeps the file open for writing until its
		// exec.
		if !errors.Is(err, syscall.ETXTBSY) || retry.Sleep(ctx, wait) != nil {
			break
		}
	}
	if err != nil {
		text := err.Error()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
			text += ": " + cut(string(exit.Stderr))
		}
		return fmt.Errorf("the program of %s does not start: %s", version, text)
	}
	if reported := strings.TrimSpace(string(out)); reported != version {
		return fmt.Errorf("the program in the archive of %s reports the version %s", version, cut(reported))
	}
	return nil
}

// cut returns the beginning of a program's output, quoted.
func cut(text string) string {
	text = strings.TrimSpace(text)
	return fmt.Sprintf("%q", text[:min(len(text), 200)])
}

// point makes a link point to a version. It replaces the old link with a single rename.
func point(root *os.Root, name, version string) error {
	if info, err := root.Stat(versionsDir + "/" + version + "/" + release.Program); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("the version %s is missing: %w", version, errors.Join(err, fs.ErrNotExist))
	}
	return setLink(root, name, versionsDir+"/"+version)
}

func setLink(root *os.Root, name, target string) error {
	if now, err := root.Readlink(name); err == nil && now == target {
		return nil
	}
	if err := root.RemoveAll(next(name)); err != nil {
		return err
	}
	if err := root.Symlink(target, next(name)); err != nil {
		return err
	}
	step("linked")
	if err := root.Rename(next(name), name); err != nil {
		return errors.Join(err, root.RemoveAll(next(name)))
	}
	return syncDir(root, ".")
}
