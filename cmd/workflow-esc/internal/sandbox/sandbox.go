// Package sandbox takes from this process everything that evaluating an environment does not need: files, the
// network, other processes, new programs, and memory and time beyond limits.
//
// On Linux the kernel enforces it with a seccomp filter and resource limits. Other systems have only what the
// process can do by itself: it stops when it used too much memory or time.
package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Limits bound what the process uses.
type Limits struct {
	Memory uint64        // bytes
	CPU    time.Duration // of processors, in whole seconds
}

const (
	// stack bounds how deep an evaluation may recurse, in bytes.
	stack = 64 << 20
	// processors is how many processors an evaluation and the garbage collection share.
	processors = 2
	// checkInterval is the time between two checks of what the process uses. Allocating the rest of the hard limit
	// of memory takes longer.
	checkInterval = 10 * time.Millisecond
)

// Enter puts the process into the sandbox. It reports false if the system has none. It must be called before
// the process reads anything that is not trusted.
func Enter(limits Limits) (bool, error) {
	os.Clearenv()
	if err := os.Chdir("/"); err != nil {
		return false, fmt.Errorf("leaving the working directory: %w", err)
	}
	runtime.GOMAXPROCS(min(processors, runtime.GOMAXPROCS(0)))
	debug.SetMaxStack(stack)
	// A process that lives for milliseconds collects no garbage before it used some memory, and works harder at it
	// before it is stopped.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(int64(limits.Memory / 4 * 3))
	// The runtime creates what timers need when the first one starts.
	time.AfterFunc(time.Hour, func() {}).Stop()
	entered, err := enter(limits)
	if err != nil {
		return false, fmt.Errorf("entering the sandbox: %w", err)
	}
	return entered, nil
}

// Watch calls exceeded, once, when the process used more memory or processor time than the limits. The
// limits of the system, which are somewhat higher, end the process without a message.
func Watch(limits Limits, exceeded func(why string)) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(checkInterval)
		defer ticker.Stop()
		samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			metrics.Read(samples)
			switch {
			case samples[0].Value.Uint64()-samples[1].Value.Uint64() > limits.Memory:
				exceeded(fmt.Sprintf("it needs more than %d MiB of memory", limits.Memory>>20))
				return
			case Used() > limits.CPU:
				exceeded(fmt.Sprintf("it needs a processor for more than %s", limits.CPU))
				return
			}
		}
	}()
	return func() { close(done) }
}
