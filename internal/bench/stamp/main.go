// Command stamp is the job of the benchmarks: it notes when it began and when it
// was about to end, and between them writes numbered lines.
//
//	stamp FILE [LINES [BYTES]]
//
// FILE is - for standard output. Under the name pulumi it stands in for the CLI:
// it ignores its arguments and stamps the file $BENCH_STAMP.pulumi, or standard
// output if that is -, so that what is measured is the product and not pulumi.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	began := time.Now()
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "pulumi" {
		args = []string{os.Getenv("BENCH_STAMP")}
		if args[0] != "-" {
			args[0] += ".pulumi"
		}
	}
	if err := run(began, args); err != nil {
		fmt.Fprintln(os.Stderr, "stamp:", err)
		os.Exit(1)
	}
}

func run(began time.Time, args []string) error {
	if len(args) == 0 || args[0] == "" {
		return errors.New("usage: stamp FILE [LINES [BYTES]]")
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
	line := make([]byte, 0, size+16)
	for i := range lines {
		line = fmt.Appendf(line[:0], "%08d ", i)
		line = append(line, filler[:max(0, size-len(line)-1)]...)
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	times := fmt.Appendf(nil, "%d %d\n", began.UnixNano(), time.Now().UnixNano())
	if args[0] == "-" {
		_, err := os.Stdout.Write(append([]byte("stamp "), times...))
		return err
	}
	return os.WriteFile(args[0], times, 0o600)
}
