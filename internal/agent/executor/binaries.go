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

// File names in the agent's working directory. An embeddable runner is a static Linux executable
// that the agent copies into containers.
const (
	RunnerName     = "workflow-runner"
	EmbeddableName = "workflow-runner-embeddable" // can have the suffix -amd64 or -arm64
)

// FindRunner returns the path of this host's runner in dir.
func FindRunner(dir string) (string, error) {
	path := filepath.Join(dir, RunnerName)
	return path, CheckRunner(path)
}

// CheckRunner returns an error if path is not an executable file.
func CheckRunner(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not in %s: install the whole archive or package there, or set working_directory to its directory", filepath.Base(path), filepath.Dir(path))
	case err != nil:
		return fmt.Errorf("finding the runner: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

// FindEmbeddable returns the path of the Linux runner in dir for containers of arch, which is amd64
// or arm64. It reads the architecture from the ELF header, not from the file name, because users
// can confuse the archives for the two architectures.
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
	seen := "found neither"
	if len(found) > 0 {
		seen = "found " + strings.Join(found, ", ")
	}
	return "", fmt.Errorf("no runner for linux/%s containers in %s: searched for %s, %s; install the whole archive or package there, or set working_directory to its directory",
		arch, dir, strings.Join(names, " and "), seen)
}

// FindAnyEmbeddable returns an error if dir has no runner for containers of any architecture.
func FindAnyEmbeddable(dir string) error {
	for _, arch := range []string{"amd64", "arm64"} {
		if _, err := FindEmbeddable(dir, arch); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no job can run in a container: neither %s nor %s-amd64 or -arm64 in %s is a static Linux runner; install the whole archive or package there, or set working_directory to its directory",
		EmbeddableName, EmbeddableName, dir)
}

// embeddableMachine returns the architecture of the Linux executable at path. It rejects a
// dynamically linked executable: the image may have another dynamic linker, or none.
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
