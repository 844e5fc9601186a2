package server

import (
	"time"

	"workflowagent/internal/memlimit"
)

// mostRequestMemory is the upper limit of requestMemory, in bytes.
const mostRequestMemory = 1 << 30

// memoryPatience is the maximum time that a request waits for memory.
const memoryPatience = 10 * time.Second

// requestMemory returns the memory that all requests share, in bytes: half of the Go memory limit,
// because the garbage collector needs room.
func requestMemory() int64 { return min(memlimit.Apply()/2, mostRequestMemory) }
