// Package e2e tries the product as its users meet it: a real server, real
// agents and runners, the stock pulumi CLI, git over HTTP and, where the machine
// can run one, a real Docker Engine. The scripts are in testdata; doc comments
// of the commands they use stand in script_test.go.
package e2e
