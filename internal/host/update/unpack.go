package update

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"workflowagent/internal/host/release"
)

// maxEntries bounds the entries of an archive.
const maxEntries = 1000

// Bounds in bytes of what an archive may become. Tests have lower ones.
var (
	maxUnpacked int64 = 2 << 30
	maxFile     int64 = 512 << 20
)

// manPage is the name of a manual page in an archive.
var manPage = regexp.MustCompile(`^man/[A-Za-z0-9._-]+\.1$`)

// expected returns the mode of a file that belongs to a release, and 0 for others:
// those are left out, so that a later release may have more. Modes in the archive are
// not looked at.
func expected(name string) fs.FileMode {
	switch {
	case slices.Contains(release.Programs(), name):
		return 0o755
	case name == "pulumi-workflow-agent.yaml.sample", name == "LICENSE", manPage.MatchString(name):
		return 0o644
	}
	return 0
}

// unpack writes the files of a release's archive, whose one directory is wrap, into
// an empty directory and stores them. An archive with anything that could lead out of
// the directory is refused, even though it is signed.
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
			return errors.New("it holds more than any release")
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

// unpackEntry writes one file.
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
		return nil // made when a file needs it
	case tar.TypeSymlink:
		// The one link of a release is made at the end, whatever it says here.
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
	// Whatever the umask of this process is.
	if err := to.Chmod(mode); err != nil {
		return err
	}
	return finish(to)
}
