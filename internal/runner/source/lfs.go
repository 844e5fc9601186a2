package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/words"
)

// Limits on the files that Git LFS stores.
const (
	maxLFSFiles   = 20_000
	maxLFSBytes   = 32 << 30
	maxLFSPointer = 1024 // bytes of a pointer, which git-lfs limits, too
)

// object is a file in the storage of Git LFS.
type object struct {
	oid  string // SHA-256 in hex
	size int64
}

// fetchLFS replaces the pointers in a checkout with the files that they refer to. It reads no
// .lfsconfig, so the files come from the server of the repository, or from where that server
// refers to.
func fetchLFS(ctx context.Context, f *fetch, l *login) error {
	root, err := os.OpenRoot(f.git.dir)
	if err != nil {
		return fmt.Errorf("opening the checkout: %w", err)
	}
	defer root.Close() // files are closed one by one
	pointers, err := findPointers(ctx, root, f.git)
	if err != nil || len(pointers) == 0 {
		return err
	}
	if f.repo.Scheme == "ssh" {
		return errors.New("fetching files from Git LFS requires an https address of the repository, and this one is for ssh")
	}
	var total int64
	var objects []object
	for o, files := range pointers {
		total += o.size * int64(len(files))
		objects = append(objects, o)
	}
	if total > maxLFSBytes {
		return fmt.Errorf("the files in Git LFS have more than %s", words.Bytes(maxLFSBytes))
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.oid, b.oid) })
	fmt.Fprintf(f.log, "Fetching %s with %s from Git LFS\n", words.Count(len(objects), "file"), words.Bytes(total))
	server := newLFSServer(f.repo, l, f.log, f.redirects)
	defer server.close()
	err = server.fetch(ctx, objects, func(o object, content *os.File) error {
		for _, name := range pointers[o] {
			if err := replace(root, name, content); err != nil {
				return fmt.Errorf("writing %q: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fetching from Git LFS: %w", err)
	}
	// Otherwise git would report the files as changed, because it does not know LFS.
	names := slices.Concat(slices.Collect(maps.Values(pointers))...)
	if _, err := f.git.input(ctx, strings.Join(names, "\x00")+"\x00", "update-index", "--assume-unchanged", "-z", "--stdin"); err != nil {
		return fmt.Errorf("recording the files of Git LFS: %w", err)
	}
	return nil
}

// findPointers returns the pointers in a checkout, with the slash-separated names of their files.
func findPointers(ctx context.Context, root *os.Root, git *commandLine) (map[object][]string, error) {
	byName := map[string]object{}
	err := eachFile(ctx, root, ".", func(name string, entry fs.DirEntry) error {
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || info.Size() >= maxLFSPointer {
			return err
		}
		text, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		o, ok := parsePointer(string(text))
		if ok {
			byName[name] = o
		}
		if len(byName) > maxLFSFiles {
			return fmt.Errorf("the repository has more than %d files in Git LFS", maxLFSFiles)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for files of Git LFS: %w", err)
	}
	if len(byName) == 0 {
		return nil, nil
	}
	return attributed(ctx, git, byName)
}

// eachFile calls visit with the files in a directory of a checkout and below it, but not with those of git
// and of submodules. [fs.WalkDir] rejects names that are not UTF-8.
func eachFile(ctx context.Context, root *os.Root, dir string, visit func(name string, entry fs.DirEntry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	opened, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := opened.ReadDir(-1)
	if err := errors.Join(err, opened.Close()); err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		switch {
		case entry.Name() == ".git":
		case !entry.IsDir():
			err = visit(name, entry)
		default:
			if _, missing := root.Lstat(path.Join(name, ".git")); missing == nil {
				continue // a submodule
			}
			err = eachFile(ctx, root, name, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// attributed returns the pointers that .gitattributes files assign to Git LFS. Other files can
// contain the same text.
func attributed(ctx context.Context, git *commandLine, byName map[string]object) (map[object][]string, error) {
	names := slices.Sorted(maps.Keys(byName))
	pointers := map[object][]string{}
	for some := range slices.Chunk(names, 200) { // names are short enough for the limit on git's output
		out, err := git.input(ctx, strings.Join(some, "\x00")+"\x00", "check-attr", "-z", "--stdin", "filter")
		if err != nil {
			return nil, fmt.Errorf("reading the attributes of files: %w", err)
		}
		// The output has a name, the attribute and its value for each file.
		fields := strings.Split(out, "\x00")
		for i := 0; i+2 < len(fields); i += 3 {
			if o, ok := byName[fields[i]]; ok && fields[i+2] == "lfs" {
				pointers[o] = append(pointers[o], fields[i])
			}
		}
	}
	return pointers, nil
}

// parsePointer parses a pointer of Git LFS. It accepts none with extensions, which no server
// provides.
func parsePointer(text string) (object, bool) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != 3 || lines[0] != "version https://git-lfs.github.com/spec/v1" {
		return object{}, false
	}
	oid, isOID := strings.CutPrefix(lines[1], "oid sha256:")
	digits, isSize := strings.CutPrefix(lines[2], "size ")
	size, err := strconv.ParseInt(digits, 10, 64)
	ok := isOID && isSize && err == nil && size >= 0 && size <= maxLFSBytes &&
		len(oid) == 64 && strings.Trim(oid, "0123456789abcdef") == ""
	return object{oid, size}, ok
}

// replace replaces a file's content and keeps its mode. [os.Root] keeps it inside the checkout.
func replace(root *os.Root, name string, content *os.File) error {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
