// Package procs finds the processes of this host.
package procs

// Process is a process of any user.
type Process struct {
	PID, Parent, Session int
	Start                uint64 // start time in the operating system's unit; only compared
	Zombie               bool   // whether the process has exited, but its exit status has not been collected
	Status               int    // exit status of a zombie, as in wait(2); 0 if the system does not report it
}
