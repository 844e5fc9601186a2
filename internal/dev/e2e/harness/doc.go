// Package harness starts the programs that the end-to-end tiers share: a server, agents, a git
// server and, where the machine can run one, a Docker Engine, with the stock pulumi CLI.
package harness
