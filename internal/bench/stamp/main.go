// Command stamp is the job of the benchmarks: it notes when it began and when it
// was about to end, and between them writes numbered lines.
//
//	stamp FILE [LINES [BYTES]]
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	began := time.Now()
	if err := run(began, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stamp:", err)
		os.Exit(1)
	}
}

func run(began time.Time, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: stamp FILE [LINES [BYTES]]")
	}
	lines, size := 0, 100
	var err error
	if len(args) > 1 {
		if lines, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	if len(args) > 2 {
		if size, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	filler := strings.Repeat("the quick brown fox jumps over the lazy dog ", size/44+1)
	for i := range lines {
		number := fmt.Sprintf("%08d ", i)
		if _, err := out.WriteString(number + filler[:max(0, size-len(number)-1)] + "\n"); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return os.WriteFile(args[0], fmt.Appendf(nil, "%d %d\n", began.UnixNano(), time.Now().UnixNano()), 0o600)
}
