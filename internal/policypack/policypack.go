// Package policypack unpacks the archives of policy packs. An archive was made by a client, so it is
// as little trusted as any other input.
package policypack

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// MaxArchive bounds the size of an archive in bytes. The server has a lower limit, policy_pack_size, by default.
const MaxArchive = 1 << 30

// maxDepth bounds the number of directories above a file.
const maxDepth = 32

// limits bound what an archive contains.
type limits struct {
	archive  int64 // bytes
	unpacked int64 // bytes, with the names of files
	files    int   // files and directories
}

// usual are the limits. A pack in Node.js without its dependencies has a few files, and a pack with a
// program for each of four platforms about 70 MB.
var usual = limits{archive: MaxArchive, unpacked: 4 << 30, files: 20_000}

// top is the directory in the archive that contains the pack. The CLI ignores everything else.
const top = "package"

// Unpack unpacks the pack in an archive, a compressed tar file, into the directory dir, which it creates,
// and which must not exist. sum is the archive's SHA-256 sum. After an error, dir does not exist.
func Unpack(ctx context.Context, archive io.Reader, sum [sha256.Size]byte, dir string) error {
	return usual.unpack(ctx, archive, sum, dir)
}

func (l limits) unpack(ctx context.Context, archive io.Reader, sum [sha256.Size]byte, dir string) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("unpacking the policy pack: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("unpacking the policy pack: %w", err), os.RemoveAll(dir))
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	hash := sha256.New()
	counted := &limited{reader: io.TeeReader(archive, hash), left: l.archive, most: l.archive, what: "the archive"}
	extractErr := l.extract(ctx, counted, root)
	// The rest of the archive counts for its sum.
	if _, err := io.Copy(io.Discard, counted); err != nil {
		return err
	}
	if [sha256.Size]byte(hash.Sum(nil)) != sum {
		return errors.New("the archive does not have the SHA-256 sum of the published pack: it was changed or is incomplete")
	}
	return extractErr
}

func (l limits) extract(ctx context.Context, archive io.Reader, root *os.Root) error {
	plain, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	entries := tar.NewReader(&limited{reader: plain, left: l.unpacked, most: l.unpacked, what: "the unpacked archive"})
	u := &unpacking{root: root, limits: l, dirs: map[string]bool{".": true}, left: l.unpacked}
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return u.complete()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if err := u.entry(header, entries); err != nil {
			return err
		}
	}
}

// unpacking is the state of an archive that is unpacked.
type unpacking struct {
	root   *os.Root
	limits limits
	dirs   map[string]bool // the directories that exist
	count  int             // files and directories that were created
	left   int64           // bytes of files that may follow
	found  bool            // whether the archive contains anything
}

func (u *unpacking) entry(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, ok, err := within(header.Name)
	if err != nil || !ok {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return u.mkdir(name)
	case tar.TypeReg:
		return u.file(name, header, content)
	default:
		return fmt.Errorf("%q is neither a file nor a directory", header.Name)
	}
}

// one counts a file or a directory.
func (u *unpacking) one() error {
	if u.count++; u.count > u.limits.files {
		return fmt.Errorf("the archive has more than %d files and directories", u.limits.files)
	}
	return nil
}

// within returns the path below the pack's directory of an entry's name. ok is false for an entry
// outside of the pack's directory.
func within(name string) (below string, ok bool, err error) {
	if path.IsAbs(name) || strings.Contains("/"+name+"/", "/../") || strings.ContainsRune(name, 0) {
		return "", false, fmt.Errorf("the archive contains the path %q", name)
	}
	cleaned := path.Clean(name)
	if strings.Count(cleaned, "/") > maxDepth {
		return "", false, fmt.Errorf("the path %q has more than %d directories", name[:64]+"…", maxDepth)
	}
	below, ok = strings.CutPrefix(cleaned+"/", top+"/")
	return path.Clean(below), ok, nil
}

// mkdir creates a directory and those above it.
func (u *unpacking) mkdir(name string) error {
	if u.dirs[name] {
		return nil
	}
	if err := u.mkdir(path.Dir(name)); err != nil {
		return err
	}
	if err := u.one(); err != nil {
		return err
	}
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	u.dirs[name] = true
	return nil
}

// file writes a file. A second one of the same name is an error.
func (u *unpacking) file(name string, header *tar.Header, content io.Reader) (err error) {
	if err := u.mkdir(path.Dir(name)); err != nil {
		return err
	}
	if err := u.one(); err != nil {
		return err
	}
	if u.left -= header.Size; u.left < 0 { // an archive with sparse files is smaller than these
		return tooLarge("the unpacked archive", u.limits.unpacked)
	}
	mode := fs.FileMode(0o644)
	if header.FileInfo().Mode()&0o111 != 0 {
		mode = 0o755
	}
	out, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, content); err != nil {
		return fmt.Errorf("unpacking %q: %w", name, err)
	}
	u.found = true
	return nil
}

func (u *unpacking) complete() error {
	if !u.found {
		return fmt.Errorf("the archive contains no file in the directory %q", top)
	}
	return nil
}

// limited is a reader that reports an error at a limit instead of the end.
type limited struct {
	reader     io.Reader
	left, most int64
	what       string
}

// Read implements [io.Reader].
func (l *limited) Read(data []byte) (int, error) {
	n, err := l.reader.Read(data[:min(int64(len(data)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		l.left = 0
		return 0, tooLarge(l.what, l.most)
	}
	return n, err
}

func tooLarge(what string, most int64) error {
	return fmt.Errorf("%s is larger than %d bytes", what, most)
}
