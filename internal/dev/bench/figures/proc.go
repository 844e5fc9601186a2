package figures

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc/PID/stat: USER_HZ, 100 per second on Linux.
const tick = 10 * time.Millisecond

// parseStat returns a process's CPU time from its /proc/PID/stat, without and with the children
// that it has waited for.
func parseStat(stat []byte) (own, withChildren time.Duration, err error) {
	// The name is in parentheses and can itself contain parentheses.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, errors.New("parsing a stat file: no command name")
	}
	const utime = 11 // index of field 14 among those after the name
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < utime+4 {
		return 0, 0, errors.New("parsing a stat file: too few fields")
	}
	var ticks [4]int64
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(string(fields[utime+i]), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("parsing the CPU time in a stat file: %w", err)
		}
	}
	own = time.Duration(ticks[0]+ticks[1]) * tick
	return own, own + time.Duration(ticks[2]+ticks[3])*tick, nil
}

// parseStatus returns a size in bytes from a /proc/PID/status, such as VmHWM. It returns 0 for an
// exiting process, whose file has no sizes.
func parseStatus(status []byte, key string) (int64, error) {
	for line := range strings.Lines(string(status)) {
		value, ok := strings.CutPrefix(line, key+":")
		if !ok {
			continue
		}
		kilobytes, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if !ok {
			return 0, fmt.Errorf("parsing a status file: %s is not in kB", key)
		}
		n, err := strconv.ParseInt(kilobytes, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parsing %s in a status file: %w", key, err)
		}
		return n << 10, nil
	}
	return 0, nil
}

// parseSchedstat returns a thread's CPU time in nanoseconds from its /proc/PID/task/TID/schedstat.
func parseSchedstat(data []byte) (time.Duration, error) {
	fields := bytes.Fields(data)
	if len(fields) < 1 {
		return 0, errors.New("parsing a schedstat file: it is empty")
	}
	n, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parsing the CPU time in a schedstat file: %w", err)
	}
	return time.Duration(n), nil
}

// ProcFile returns the path of a file of a process in /proc.
func ProcFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// CPU returns the CPU time of a process and, recursively, of the children that it has waited for.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(ProcFile(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	_, all, err := parseStat(stat)
	return all, err
}

// FineCPU returns the CPU time of a process's live threads, with a finer resolution than [CPU], for
// a nearly idle process.
func FineCPU(pid int) (time.Duration, error) {
	files, err := filepath.Glob(ProcFile(pid, "task/*/schedstat"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("reading the CPU time of the threads of process %d: %w", pid, errors.Join(err, os.ErrNotExist))
	}
	var sum time.Duration
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has exited
		}
		if err != nil {
			return 0, err
		}
		d, err := parseSchedstat(data)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// TreeCPU returns the CPU time of a process and of all of its descendants, including those that have
// exited.
func TreeCPU(pid int) (sum time.Duration, err error) {
	for _, p := range Tree(pid) {
		used, err := CPU(p)
		if errors.Is(err, os.ErrNotExist) && p != pid {
			continue // it has exited, and its parent's time includes its own
		}
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// Memory returns a memory size of a process, such as VmRSS, in bytes.
func Memory(pid int, key string) (int64, error) {
	status, err := os.ReadFile(ProcFile(pid, "status"))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of a process: %w", err)
	}
	return parseStatus(status, key)
}

// Tree returns a process and its descendants.
func Tree(pid int) []int {
	pids := []int{pid}
	threads, err := os.ReadDir(ProcFile(pid, "task"))
	if err != nil {
		return pids // exited
	}
	for _, thread := range threads {
		data, err := os.ReadFile(ProcFile(pid, "task/"+thread.Name()+"/children"))
		if err != nil {
			continue // the thread has exited
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, Tree(child)...)
			}
		}
	}
	return pids
}

// PeakSampler records the highest memory use of processes.
type PeakSampler struct {
	stop, done chan struct{}
	peak       int64
}

// sampleInterval is the interval between memory samples. A sample reads the peaks that the kernel
// records, so it also reports peaks between two samples.
const sampleInterval = 20 * time.Millisecond

// Sum returns the total of a memory size over the wanted processes of a process tree.
func Sum(pid int, key string, wanted func(pid int) bool) int64 {
	var all int64
	for _, p := range Tree(pid) {
		if !wanted(p) {
			continue
		}
		if n, err := Memory(p, key); err == nil { // otherwise it has exited
			all += n
		}
	}
	return all
}

// EveryProcess accepts all processes, for [Sum] and [SamplePeak].
func EveryProcess(int) bool { return true }

// SamplePeak samples the memory use of the wanted processes of a process tree until
// [PeakSampler.End].
func SamplePeak(pid int, wanted func(pid int) bool) *PeakSampler {
	s := &PeakSampler{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(sampleInterval)
		defer ticker.Stop()
		for {
			s.peak = max(s.peak, Sum(pid, "VmHWM", wanted))
			select {
			case <-ticker.C:
			case <-s.stop:
				return
			}
		}
	}()
	return s
}

// End returns the highest sum of the peaks of concurrent processes, in bytes. It counts shared
// pages once per process.
func (s *PeakSampler) End() int64 {
	close(s.stop)
	<-s.done
	return s.peak
}
