package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/sys/boundedfile"
)

// stored is a backup that is read.
type stored struct {
	root     *os.Root
	path     string
	owner    int
	manifest Manifest
}

// open opens a backup, and reads its manifest.
func open(path string) (*stored, error) {
	owner, err := checkPrivate(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the backup: %w", err)
	}
	b := &stored{root: root, path: path, owner: owner}
	data, err := b.read(manifestName, maxManifest)
	if err == nil {
		b.manifest, err = decodeManifest(data)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the backup %s: %w", path, err), root.Close())
	}
	return b, nil
}

func (b *stored) close() { _ = b.root.Close() }

// check returns an error for a file that only an attacker, or another program, can have put into the backup.
func (b *stored) check(name string, info fs.FileInfo, directory bool) error {
	switch stat, ok := info.Sys().(*syscall.Stat_t); {
	case !ok:
		return fmt.Errorf("%s: this system does not state the owners of files", name)
	case directory && !info.IsDir(), !directory && !info.Mode().IsRegular():
		return fmt.Errorf("%s is a link, or another file than a backup contains", name)
	case int(stat.Uid) != b.owner && stat.Uid != 0:
		return fmt.Errorf("%s belongs to user %d, but the backup to user %d", name, stat.Uid, b.owner)
	case info.Mode().Perm()&0o022 != 0: // whether others can read it depends on the directory of the backup
		return fmt.Errorf("other users may write to %s (mode %04o)", name, info.Mode().Perm())
	}
	return nil
}

// openFile opens a regular file that belongs to the backup.
func (b *stored) openFile(name string) (*os.File, error) {
	info, err := b.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := b.check(name, info, false); err != nil {
		return nil, err
	}
	f, opened, err := boundedfile.OpenIn(b.root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", name), f.Close())
	}
	return f, nil
}

func (b *stored) read(name string, limit int64) ([]byte, error) {
	f, err := b.openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}

// hashed is a file whose hash is computed while it is read.
type hashed struct {
	f    *os.File
	part Part
	hash hash.Hash
	n    int64
}

func (b *stored) openPart(name string, part Part) (*hashed, error) {
	f, err := b.openFile(name)
	if err != nil {
		return nil, damaged(name, err)
	}
	return &hashed{f: f, part: part, hash: sha256.New()}, nil
}

// Read implements [io.Reader]. It reads at most one byte more than the file must have.
func (h *hashed) Read(p []byte) (int, error) {
	if left := h.part.Size + 1 - h.n; int64(len(p)) > left {
		p = p[:max(left, 0)]
	}
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := h.f.Read(p)
	h.hash.Write(p[:n])
	h.n += int64(n)
	return n, err
}

// complete reads what has not been read, and returns an error if the content is not that of the part.
func (h *hashed) complete() error {
	if _, err := io.Copy(io.Discard, h); err != nil {
		return err
	}
	switch {
	case h.n > h.part.Size:
		return fmt.Errorf("it has more than %d bytes", h.part.Size)
	case h.n < h.part.Size:
		return fmt.Errorf("it has %d bytes instead of %d", h.n, h.part.Size)
	case hex.EncodeToString(h.hash.Sum(nil)) != h.part.SHA256:
		return errContent
	}
	return nil
}

// maxWindow bounds the memory of decompression.
const maxWindow = 8 << 20

// lines calls read with the lines of a compressed file, and checks the file's hash.
func (b *stored) lines(name string, part Part, read func(*bufio.Reader) error) error {
	h, err := b.openPart(name, part)
	if err != nil {
		return err
	}
	defer h.f.Close()
	z, err := zstd.NewReader(h, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return damaged(name, err)
	}
	defer z.Close()
	if err := read(bufio.NewReaderSize(z, 64<<10)); err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if full := h.complete(); full != nil { // explains most errors of the content
			return damaged(name, full)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := h.complete(); err != nil {
		return damaged(name, err)
	}
	return nil
}

// maxEntry bounds a line of the list of blobs.
const maxEntry = 4096

// blobList reads the list of blobs.
type blobList struct {
	r    *bufio.Reader
	last string
}

// next returns the next entry, or [io.EOF].
func (l *blobList) next() (Blob, error) {
	line, err := readLine(l.r, maxEntry)
	if err != nil {
		return Blob{}, err
	}
	var entry Blob
	if err := json.Unmarshal(line, &entry); err != nil {
		return Blob{}, err
	}
	if err := blob.CheckKey(entry.Key); err != nil {
		return Blob{}, err
	}
	if entry.Size < 0 {
		return Blob{}, fmt.Errorf("the blob %s has the size %d", entry.Key, entry.Size)
	}
	if l.last != "" && blob.Compare(l.last, entry.Key) >= 0 {
		return Blob{}, fmt.Errorf("the blob %s follows %s, against the order of the list", entry.Key, l.last)
	}
	l.last = entry.Key
	return entry, nil
}

// eachBlob calls do with all entries of the list of blobs.
func (b *stored) eachBlob(do func(Blob) error) error {
	var count, bytes int64
	var failed error
	err := b.lines(blobsName, b.manifest.Blobs.Part, func(r *bufio.Reader) error {
		list := blobList{r: r}
		for {
			entry, err := list.next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			count, bytes = count+1, bytes+entry.Size
			if failed = do(entry); failed != nil {
				return failed
			}
		}
	})
	switch {
	case failed != nil:
		return failed // it is not the list that is damaged
	case err != nil:
		return err
	case count != b.manifest.Blobs.Count || bytes != b.manifest.Blobs.Bytes:
		return damaged(blobsName, fmt.Errorf("it lists %d blobs of %d bytes, but the manifest %d of %d", count, bytes, b.manifest.Blobs.Count, b.manifest.Blobs.Bytes))
	}
	return nil
}

// openBlob opens the file of a blob.
func (b *stored) openBlob(entry Blob) (*hashed, error) {
	return b.openPart(blobName(entry.Key), Part{Size: entry.Size, SHA256: entry.SHA256})
}

// previous is the backup before the one that is written. A nil previous contains nothing.
type previous struct {
	backup *stored
	file   *os.File
	z      *zstd.Decoder
	list   blobList
	entry  Blob // the next one
	ended  bool
}

// openPrevious opens the newest backup in a directory of the same installation as the one that is written, or returns
// nil if none exists. It ignores those from the future.
func openPrevious(dir string, written Manifest) (*previous, error) {
	found, err := list(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(found) {
		switch {
		case e.time.After(written.Time):
		case e.Problem != nil:
			return nil, e.Problem
		case e.Manifest.Installation == written.Installation:
			return newPrevious(e.Path)
		}
	}
	return nil, nil //nolint:nilnil // none
}

func newPrevious(path string) (*previous, error) {
	b, err := open(path)
	if err != nil {
		return nil, err
	}
	p := &previous{backup: b}
	if p.file, err = b.openFile(blobsName); err != nil {
		p.close()
		return nil, err
	}
	if p.z, err = zstd.NewReader(p.file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
		p.close()
		return nil, err
	}
	p.list.r = bufio.NewReader(p.z)
	return p, nil
}

// find returns the entry of a key, or an empty one. The keys of its calls must be in the order of the list.
func (p *previous) find(key string) (Blob, error) {
	if p == nil {
		return Blob{}, nil
	}
	for !p.ended && (p.entry.Key == "" || blob.Compare(p.entry.Key, key) < 0) {
		entry, err := p.list.next()
		if errors.Is(err, io.EOF) {
			p.ended = true
			break
		}
		if err != nil {
			return Blob{}, err
		}
		p.entry = entry
	}
	if p.ended || p.entry.Key != key {
		return Blob{}, nil
	}
	return p.entry, nil
}

func (p *previous) blobPath(key string) string { return filepath.Join(p.backup.path, blobName(key)) }

func (p *previous) close() {
	if p == nil {
		return
	}
	if p.z != nil {
		p.z.Close()
	}
	if p.file != nil {
		_ = p.file.Close()
	}
	p.backup.close()
}
