package child

import (
	"os"
	"strings"
)

// Tail returns the last n lines of a file. If it cannot read the file, it returns the error in
// parentheses.
func Tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
