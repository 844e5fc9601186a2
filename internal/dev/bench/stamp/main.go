// Command stamp is the benchmarks' job: it records the time, writes numbered lines, and records the
// time again just before it exits.
//
//	stamp FILE [LINES [BYTES [PER_SECOND]]]
//
// FILE is - for standard output. With PER_SECOND, each line is written separately and ends with an
// @ and its time in nanoseconds. Under the name pulumi, stamp replaces the CLI, so that the
// benchmarks measure the product and not pulumi. It then ignores its arguments and writes the times
// to $BENCH_STAMP.pulumi, or to standard output if BENCH_STAMP is -.
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
		return errors.New("usage: stamp FILE [LINES [BYTES [PER_SECOND]]]")
	}
	numbers := [3]int{0, 100, 0} // LINES, BYTES and PER_SECOND
	for i, arg := range args[1:min(len(args), 1+len(numbers))] {
		var err error
		if numbers[i], err = strconv.Atoi(arg); err != nil {
			return err
		}
	}
	lines, size, rate := numbers[0], numbers[1], numbers[2]
	if err := write(lines, size, rate); err != nil {
		return err
	}
	times := fmt.Appendf(nil, "%d %d\n", began.UnixNano(), time.Now().UnixNano())
	if args[0] == "-" {
		_, err := os.Stdout.Write(append([]byte("stamp "), times...))
		return err
	}
	return os.WriteFile(args[0], times, 0o600)
}

func filler(size int) string {
	return strings.Repeat("the quick brown fox jumps over the lazy dog ", size/44+1)
}

func write(lines, size, rate int) error {
	if rate > 0 {
		return printSlowly(lines, size, rate)
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	fill := filler(size)
	line := make([]byte, 0, size+16)
	for i := range lines {
		line = fmt.Appendf(line[:0], "%08d ", i)
		line = append(line, fill[:max(0, size-len(line)-1)]...)
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}

func printSlowly(lines, size, rate int) error {
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	fill := filler(size)
	for i := range lines {
		<-ticker.C
		if _, err := fmt.Printf("%08d %s @%d\n", i, fill[:size], time.Now().UnixNano()); err != nil {
			return err
		}
	}
	return nil
}
