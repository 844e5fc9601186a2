//go:build tools

// Package tools pins an older CLI: the last line before journals became the default. Users upgrade servers
// before the clients of all their laptops.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
