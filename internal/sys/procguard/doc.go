// Package procguard hides a process's secrets from its user's other processes, such as jobs.
package procguard
