package mirror

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"workflowagent/internal/sys/durable"
)

// Limits on an archive, in bytes and files. A release has about 150 MB, 700 MB unpacked, and 25 files.
const (
	maxArchive  = 2 << 30
	maxUnpacked = 8 << 30
	maxFiles    = 1000
)

// program is the file that each release contains.
const program = "pulumi"

// draftPrefix is the prefix of the directories in which calls unpack an archive.
const draftPrefix = ".draft-"

// unpack fetches an archive, verifies it, and unpacks it as dir, which appears only when it is complete.
func (m *Mirror) unpack(ctx context.Context, a archive, dir string) (err error) {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(m.dir, draftPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()
	file := filepath.Join(draft, "archive")
	if err := m.fetch(ctx, a, file); err != nil {
		return err
	}
	unpacked := filepath.Join(draft, "release")
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return err
	}
	if err := extract(ctx, file, unpacked); err != nil {
		return fmt.Errorf("unpacking %s: %w", a.name, err)
	}
	if err := durable.SyncDir(unpacked); err != nil {
		return err
	}
	if err := os.Rename(unpacked, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr != nil {
			return err
		} // else an agent with the same state directory was faster
	}
	return durable.SyncDir(m.dir)
}

// fetch copies an archive to a file and verifies its sum.
func (m *Mirror) fetch(ctx context.Context, a archive, to string) (err error) {
	content, err := m.open(ctx, a.name)
	if err != nil {
		return err
	}
	defer content.Close() // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(out, hash), io.LimitReader(content, maxArchive+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", a.name, err)
	case size > maxArchive:
		return fmt.Errorf("%s is larger than %d bytes", a.name, maxArchive)
	case [32]byte(hash.Sum(nil)) != a.sum:
		return fmt.Errorf("%s does not have the pinned SHA-256 sum: it was changed or is incomplete", a.name)
	}
	return nil
}

// open opens a file of the mirror.
func (m *Mirror) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if !IsURL(m.config.Location) {
		return os.Open(filepath.Join(m.config.Location, name))
	}
	at, err := url.JoinPath(m.config.Location, name)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	// Else, the client would decompress an archive whose compression the mirror declares as an encoding of
	// the answer, and the sum would be wrong.
	req.Header.Set("Accept-Encoding", "identity")
	response, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("the mirror answers the request for %s with %s", name, response.Status), response.Body.Close())
	}
	return response.Body, nil
}

// extract unpacks the programs of a release into a directory. An archive has them in one directory.
func extract(ctx context.Context, file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() // only read
	plain, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	found := false
	left := int64(maxUnpacked)
	entries := tar.NewReader(plain)
	for range maxFiles {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if !found {
				return fmt.Errorf("the archive does not contain %s/%s", program, program)
			}
			return nil
		}
		if err != nil {
			return err
		}
		in, name := path.Split(path.Clean(header.Name))
		if header.Typeflag != tar.TypeReg || in != program+"/" || strings.HasPrefix(name, ".") {
			continue
		}
		if left -= header.Size; left < 0 {
			return fmt.Errorf("the archive has more than %d bytes", int64(maxUnpacked))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), entries); err != nil {
			return err
		}
		found = found || name == program
	}
	return fmt.Errorf("the archive has more than %d files", maxFiles)
}

// write writes a program. A second file of the same name is an error.
func write(to string, content io.Reader) (err error) {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, content); err != nil {
		return err
	}
	return out.Sync()
}
