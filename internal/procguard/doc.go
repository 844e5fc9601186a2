// Package procguard keeps the secrets in a process's memory from the other
// processes of its user. Jobs that run without a container are such processes.
package procguard
