// Package publicapi lists the operations of Pulumi Cloud's public REST API for stacks and deployments.
package publicapi

import (
	_ "embed"
	"regexp"
	"strings"
)

//go:embed operations.txt
var operations string

// Operation is an operation of the public API.
type Operation struct {
	Method, Path, ID string
}

// Operations returns the operations of the public API in the order of their paths.
func Operations() []Operation {
	var all []Operation
	for line := range strings.Lines(operations) {
		f := strings.Fields(line)
		all = append(all, Operation{Method: f[0], Path: f[1], ID: f[2]})
	}
	return all
}

// Parameter matches the parameters of a path.
var Parameter = regexp.MustCompile(`\{([^{}]*)\}`)

// Shape returns a route without the names of its parameters. The same operation can have
// differently named parameters here and in the public API.
func Shape(method, path string) string {
	return method + " " + Parameter.ReplaceAllString(path, "{}")
}
