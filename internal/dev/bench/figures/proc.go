package figures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of CPU time in /proc/PID/stat: USER_HZ, 100 per second on Linux.
const tick = 10 * time.Millisecond

// CPU returns the CPU time of a process and, recursively, of the children that it has waited for.
func CPU(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	return tick * time.Duration(int(stat.UTime)+int(stat.STime)+stat.CUTime+stat.CSTime), nil
}

// FineCPU returns the CPU time of a process's live threads, with a finer resolution than [CPU], for
// a nearly idle process.
func FineCPU(pid int) (sum time.Duration, err error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of the threads of process %d: %w", pid, err)
	}
	for _, thread := range threads {
		stat, err := thread.Schedstat()
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has exited
		}
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of a thread: %w", err)
		}
		sum += time.Duration(stat.RunningNanoseconds)
	}
	return sum, nil
}

// Spent returns the CPU time that cpu reports for a call.
func Spent(cpu func() (time.Duration, error), call func() error) (time.Duration, error) {
	before, err := cpu()
	if err != nil {
		return 0, err
	}
	if err := call(); err != nil {
		return 0, err
	}
	after, err := cpu()
	return after - before, err
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

// Size is the memory of a process, in bytes: what it uses now, and the highest since its start. Both are
// 0 for an exiting process.
type Size struct{ Now, Peak int64 }

// Memory returns the memory size of a process.
func Memory(pid int) (Size, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Size{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return Size{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	return Size{int64(status.VmRSS), int64(status.VmHWM)}, nil
}

// Program returns the path of a process's program, or "" if it has exited.
func Program(pid int) string {
	path, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return path
}

// Tree returns a process and its descendants.
func Tree(pid int) []int {
	pids := []int{pid}
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/children"))
	if err != nil {
		return pids
	}
	for _, thread := range threads {
		data, err := os.ReadFile(thread)
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

// Sum returns the memory of the wanted processes of a process tree.
func Sum(pid int, wanted func(pid int) bool) (all Size) {
	for _, p := range Tree(pid) {
		if !wanted(p) {
			continue
		}
		if size, err := Memory(p); err == nil { // otherwise it has exited
			all.Now += size.Now
			all.Peak += size.Peak
		}
	}
	return all
}

// PeakSampler records the highest memory use of processes.
type PeakSampler struct {
	stop, done chan struct{}
	peak       int64
}

// sampleInterval is the interval between memory samples. A sample reads the peaks that the kernel
// records, so it also reports peaks between two samples.
const sampleInterval = 20 * time.Millisecond

// SamplePeak samples the memory use of the wanted processes of a process tree until
// [PeakSampler.End].
func SamplePeak(pid int, wanted func(pid int) bool) *PeakSampler {
	s := &PeakSampler{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(sampleInterval)
		defer ticker.Stop()
		for {
			s.peak = max(s.peak, Sum(pid, wanted).Peak)
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
