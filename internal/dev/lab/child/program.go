package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// systemDirs are program directories that are often not on the PATH.
var systemDirs = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// Find returns the path of an installed program, which need not be on the PATH.
func Find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range systemDirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is not installed", name)
}

// Path returns a PATH with the directories in which [Find] looks.
func Path() string {
	dirs := append([]string{os.Getenv("PATH")}, systemDirs...)
	return strings.Join(dirs, string(os.PathListSeparator))
}
