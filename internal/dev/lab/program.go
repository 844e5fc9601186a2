package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// systemDirs are program directories that are often not on the PATH.
var systemDirs = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"}

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

func programPath() string {
	dirs := append([]string{os.Getenv("PATH")}, systemDirs...)
	return strings.Join(dirs, string(os.PathListSeparator))
}
