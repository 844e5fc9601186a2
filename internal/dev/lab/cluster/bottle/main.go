// Command bottle holds the processes of a test cluster so that they cannot outlive their owner.
//
// Its outer process, the keeper, creates new namespaces for process IDs, mounts, the network and IPC, and runs
// itself again as their first process. When the keeper's standard input is closed, which the kernel does however the
// owner ends, the keeper kills that first process. The kernel then kills all other processes of the namespaces and
// removes their mounts and interfaces; the keeper removes the control groups and the files.
//
// The first process starts and stops programs for the owner, over HTTP on a socket in the cluster's directory.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bottle:", err)
		os.Exit(1)
	}
}
