package lab

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/dev/lab/child"
)

// rootfs is an image's file system, created from this machine's files. Its paths begin with a
// slash.
type rootfs struct {
	entries map[string]rootEntry
}

type rootEntry struct {
	mode fs.FileMode // including the type; permissions apply only to directories and texts
	uid  int
	link string // target of a symbolic link
	text string // content of a file that is not copied
	host string // path of a copied file on this machine
}

func newRootfs() *rootfs {
	r := &rootfs{entries: map[string]rootEntry{}}
	r.dir("/tmp", 0o1777, 0)
	r.dir("/var/tmp", 0o1777, 0)
	r.dir("/root", 0o700, 0)
	r.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\npulumi:x:1000:1000:pulumi:/home/pulumi:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n")
	r.text("/etc/group", "root:x:0:\npulumi:x:1000:\nnogroup:x:65534:\n")
	r.text("/etc/nsswitch.conf", "hosts: files dns\n")
	r.dir("/home/pulumi", 0o755, 1000)
	return r
}

func (r *rootfs) dir(name string, perm fs.FileMode, uid int) {
	mode := fs.ModeDir | perm&0o777
	if perm&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	r.entries[name] = rootEntry{mode: mode, uid: uid}
}

func (r *rootfs) text(name, content string) {
	r.entries[name] = rootEntry{mode: 0o644, text: content}
}

func (r *rootfs) script(name, content string) {
	r.entries[name] = rootEntry{mode: 0o755, text: content}
}

func (r *rootfs) link(name, target string) {
	r.entries[name] = rootEntry{mode: fs.ModeSymlink | 0o777, link: target}
}

// file adds a copy of a file, following links, without the file's dependencies.
func (r *rootfs) file(name, host string) {
	r.entries[name] = rootEntry{mode: 0o644, host: host}
}

// program adds a copy of a program. It also adds the program's shared libraries, at their paths on
// this machine.
func (r *rootfs) program(ctx context.Context, name, host string) error {
	r.file(name, host)
	libraries, err := libraries(ctx, host)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		r.file(library, library)
	}
	return nil
}

// tree adds a copy of a directory, except for the paths that skip matches. Links remain links, and
// each program or library is copied with its libraries.
func (r *rootfs) tree(ctx context.Context, name, host string, skip func(name string) bool) error {
	return filepath.WalkDir(host, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(host, p)
		if err != nil || rel == "." {
			return err
		}
		if skip(rel) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		inside := path.Join(name, filepath.ToSlash(rel))
		switch {
		case entry.IsDir():
			r.dir(inside, 0o755, 0)
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			r.link(inside, target)
			return err
		default:
			info, err := entry.Info()
			if err != nil {
				return err
			}
			if info.Mode()&0o111 == 0 && !strings.Contains(inside, ".so") {
				r.file(inside, p)
				return nil
			}
			return r.program(ctx, inside, p)
		}
	})
}

// fingerprint adds all inputs of the file system to key. For this machine's files it adds only
// sizes and modification times, because hashing the files would take as long as creating the image.
func (r *rootfs) fingerprint(key *fingerprint) error {
	for name, entry := range r.entries {
		value := fmt.Sprintf("%v %d %q %q", entry.mode, entry.uid, entry.link, entry.text)
		if entry.host != "" {
			info, err := os.Stat(entry.host)
			if err != nil {
				return fmt.Errorf("reading an image input: %w", err)
			}
			value += fmt.Sprintf(" %s %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
		key.add(name, value)
	}
	return nil
}

func (r *rootfs) writeTar(w io.Writer) error {
	out := tar.NewWriter(w)
	done := map[string]bool{"/": true}
	// add writes an entry, after its parent directories.
	var add func(name string, entry rootEntry) error
	add = func(name string, entry rootEntry) error {
		if done[name] {
			return nil
		}
		done[name] = true
		parent := path.Dir(name)
		parentEntry, ok := r.entries[parent]
		if !ok {
			parentEntry = rootEntry{mode: fs.ModeDir | 0o755}
		}
		if err := add(parent, parentEntry); err != nil {
			return err
		}
		return entry.write(out, strings.TrimPrefix(name, "/"))
	}
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		if err := add(name, r.entries[name]); err != nil {
			return fmt.Errorf("adding %s to the image: %w", name, err)
		}
	}
	return out.Close()
}

func (e rootEntry) write(out *tar.Writer, name string) error {
	header := &tar.Header{Name: name, Mode: int64(e.mode.Perm()), Uid: e.uid, Gid: e.uid, ModTime: time.Unix(0, 0)}
	switch {
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		if e.mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		return out.WriteHeader(header)
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		return out.WriteHeader(header)
	case e.host == "":
		header.Size = int64(len(e.text))
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.WriteString(out, e.text)
		return err
	}
	file, err := os.Open(e.host)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size, header.Mode = info.Size(), int64(info.Mode().Perm())
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}

// libraries returns the shared libraries of a program. A static program or a script has none.
func libraries(ctx context.Context, program string) ([]string, error) {
	out, err := child.Command(ctx, "ldd", program).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit): // "not a dynamic executable"
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("finding the libraries of %s: %w", program, err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") {
				found = append(found, field)
			}
		}
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("finding the libraries of %s: %s", program, strings.TrimSpace(line))
		}
	}
	return found, nil
}
