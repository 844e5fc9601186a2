// Package harness starts what every end-to-end tier needs: a server, agents, a git server
// and, where the machine can run one, a Docker Engine, all with the stock pulumi CLI.
package harness
