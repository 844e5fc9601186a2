package executor

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The names of the runner in the agent's working directory. Every archive holds
// the runner of its own platform and the embeddables: static Linux builds that
// are put into containers.
const (
	RunnerName     = "workflow-runner"
	EmbeddableName = "workflow-runner-embeddable" // also with -amd64 or -arm64 appended
)

// FindRunner returns the path of the runner for this host in dir.
func FindRunner(dir string) (string, error) {
	path := filepath.Join(dir, RunnerName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s is not in %s: install the whole archive or package there, or set working_directory to where it is", RunnerName, dir)
	case err != nil:
		return "", fmt.Errorf("looking for the runner: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s is not an executable file", path)
	}
	return path, nil
}

// FindEmbeddable returns the path of the Linux runner for containers of the given
// architecture (amd64 or arm64, as Go and image configurations name them) in dir.
// The file names only say where to look: what the file is made for is read from
// the file, because archives of both architectures are easily mixed up.
func FindEmbeddable(dir, arch string) (string, error) {
	machine, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if !ok {
		return "", fmt.Errorf("no runner exists for the image's architecture %q: use an image for linux/amd64 or linux/arm64", arch)
	}
	names := []string{EmbeddableName, EmbeddableName + "-" + arch}
	var found []string
	for _, name := range names {
		path := filepath.Join(dir, name)
		got, err := embeddableMachine(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			found = append(found, fmt.Sprintf("%s (%v)", name, err))
			continue
		case got == machine:
			return path, nil
		}
		found = append(found, fmt.Sprintf("%s (made for %s)", name, strings.TrimPrefix(got.String(), "EM_")))
	}
	seen := "neither is there"
	if len(found) > 0 {
		seen = "found " + strings.Join(found, ", ")
	}
	return "", fmt.Errorf("no runner for linux/%s containers in %s: looked for %s, %s; install the whole archive or package there, or set working_directory to where it is",
		arch, dir, strings.Join(names, " and "), seen)
}

// FindAnyEmbeddable reports an error if dir has no runner for containers at all, of
// whatever architecture.
func FindAnyEmbeddable(dir string) error {
	for _, arch := range []string{"amd64", "arm64"} {
		if _, err := FindEmbeddable(dir, arch); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no job can run in a container: neither %s nor %s-amd64 or -arm64 in %s is a static Linux runner; install the whole archive or package there, or set working_directory to where it is",
		EmbeddableName, EmbeddableName, dir)
}

// embeddableMachine returns what the Linux executable at path is made for. One
// that needs a dynamic linker is refused: the image may have another, or none.
func embeddableMachine(path string) (elf.Machine, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("not a regular file")
	}
	f, err := elf.Open(path)
	if err != nil {
		return 0, errors.New("not a Linux executable")
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return 0, errors.New("not a static executable")
		}
	}
	return f.Machine, nil
}
