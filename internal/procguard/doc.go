// Package procguard protects the secrets in a process's memory from other processes of its user,
// such as jobs that run without a container.
package procguard
