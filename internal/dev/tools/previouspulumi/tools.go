//go:build tools

// Package tools pins the CLI before begin-update and policy exceptions. The modules that it uses have the versions of
// those of the newest CLI, except for one that it cannot be compiled with, so that only Pulumi's own packages are compiled
// a second time.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
