package procs

// Hidden reports that this system hides no processes.
func Hidden() (bool, error) { return false, nil }
