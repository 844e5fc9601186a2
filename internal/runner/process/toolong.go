package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// maxString is the size above which Linux refuses an argument or an environment variable, whatever
// the limit of the whole is. It includes a final zero.
const maxString = 128 << 10

// ExplainStart returns the error of starting a program. If the system refused the size of the
// arguments and variables, the error names the largest and says what to do.
func ExplainStart(err error, args, env []string) error {
	if !errors.Is(err, syscall.E2BIG) {
		return err
	}
	total, largest, name := 0, 0, ""
	for _, arg := range args {
		total += len(arg) + 1
		if len(arg) >= maxString {
			return fmt.Errorf("%w: the command has %d bytes, and the system passes fewer than %d: put it into a script in the repository",
				err, len(arg), maxString)
		}
	}
	for _, entry := range env {
		total += len(entry) + 1
		if len(entry) > largest {
			largest = len(entry)
			name, _, _ = strings.Cut(entry, "=")
		}
	}
	if largest >= maxString {
		return fmt.Errorf("%w: the environment variable %s has %d bytes, and the system passes fewer than %d: write the value to a file",
			err, name, largest, maxString)
	}
	return fmt.Errorf("%w: the environment has %d bytes in total, more than the system passes, and the largest variable is %s with %d bytes: write large values to files",
		err, total, name, largest)
}
