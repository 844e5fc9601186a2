package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// systemDirs are directories of programs that are often missing from the PATH.
var systemDirs = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// findProgram finds a program on the PATH or in the system's directories.
func findProgram(name string) (string, error) {
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

// programPath is a PATH that has the system's directories too.
func programPath() string {
	dirs := append([]string{os.Getenv("PATH")}, systemDirs...)
	return strings.Join(dirs, string(os.PathListSeparator))
}
