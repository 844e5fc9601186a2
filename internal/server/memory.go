package server

import (
	"runtime"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/memlimit"
)

// mostRequestMemory is the upper limit of requestMemory, in bytes.
const mostRequestMemory = 1 << 30

// memoryPatience is the maximum time that a request waits for memory.
const memoryPatience = 10 * time.Second

// concurrentEvaluations returns the number of environments that are evaluated at the same time: as many as the processors and
// a quarter of the memory are enough for, but two, so that one organization leaves room for others. Programs that evaluate are
// in the control group of the server, and need memory besides it.
func concurrentEvaluations() int {
	return int(max(2, min(8, 2*int64(runtime.GOMAXPROCS(0)), memlimit.Apply()/(4*wire.Memory))))
}

// requestMemory returns the memory that all requests share, in bytes: half of the Go memory limit,
// because the garbage collector needs room.
func requestMemory() int64 { return min(memlimit.Apply()/2, mostRequestMemory) }
