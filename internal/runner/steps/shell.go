package steps

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ShellText returns a command without the carriage returns of files and forms on Windows, which a shell
// would take for a part of the last word of each line.
func ShellText(command string) string {
	return strings.TrimRight(strings.ReplaceAll(command, "\r\n", "\n"), "\r")
}

// FindShell returns the command line of the named shell. The name can include options. The default
// is bash, or sh if bash is missing.
func FindShell(name string) ([]string, error) {
	words := strings.Fields(name)
	candidates := [][]string{words}
	if len(words) == 0 {
		candidates = [][]string{{"bash"}, {"sh"}}
	}
	for _, candidate := range candidates {
		if path, err := exec.LookPath(candidate[0]); err == nil {
			return append([]string{path}, candidate[1:]...), nil
		}
	}
	if len(words) == 0 {
		return nil, errors.New("finding a shell where the job runs: neither bash nor sh is in the PATH")
	}
	return nil, fmt.Errorf("the shell %q is not installed where the job runs", words[0])
}
