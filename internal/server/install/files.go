package install

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/sys/durable"
)

// The limits of an archive.
const (
	maxFiles = 1000
	maxFile  = 1 << 30 // bytes
)

// place unpacks the archive next to the installation's files, and moves the new files there, the program
// last. The previous programs are kept.
func (i *installer) place() error {
	draft, err := os.MkdirTemp(i.Dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft) //nolint:errcheck // empty after a success
	names, err := unpack(i.Archive, draft)
	if err != nil {
		return err
	}
	if !slices.Contains(names, program) {
		return errors.New("the archive does not contain the program")
	}
	if err := i.keepPrevious(); err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	for _, name := range names {
		to := filepath.Join(i.Dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(draft, name), to); err != nil {
			return err
		}
	}
	return durable.SyncDir(i.Dir)
}

// keepPrevious gives the installed programs a second name, so that the service can start all the time.
func (i *installer) keepPrevious() error {
	for _, name := range []string{evaluator, program} {
		installed := filepath.Join(i.Dir, name)
		if err := os.Remove(installed + previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Link(installed, installed+previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func rank(name string) int {
	if name == program {
		return 1
	}
	return 0
}

// unpack writes the regular files of an archive to a directory, without the archive's own directory, and
// returns their names.
func unpack(archive, dir string) (names []string, err error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for members := tar.NewReader(unpacked); len(names) < maxFiles; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the archive: %w", err)
		}
		_, name, inside := strings.Cut(header.Name, "/")
		if header.Typeflag != tar.TypeReg || !inside {
			continue
		}
		if header.Size > maxFile {
			return nil, fmt.Errorf("the file %q of the archive is too large", name)
		}
		if err := writeFile(root, name, header.FileInfo().Mode().Perm(), members); err != nil {
			return nil, fmt.Errorf("unpacking %q: %w", name, err)
		}
		names = append(names, name)
	}
	return nil, errors.New("the archive contains too many files")
}

// writeFile writes a file below root, which no name can leave.
func writeFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode&0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(mode&0o755), file.Sync(), file.Close())
}

// removeFiles removes the installation's files, and the directory if it contains no others.
func (i *installer) removeFiles() error {
	for _, name := range []string{program, program + previous, evaluator, evaluator + previous, "man", "LICENSE", "THIRD_PARTY_NOTICES", "workflow-server.yaml.sample", "workflow-server.schema.json"} {
		if err := os.RemoveAll(filepath.Join(i.Dir, name)); err != nil {
			return err
		}
	}
	_ = os.Remove(i.Dir) // fails if it contains other files
	return nil
}
