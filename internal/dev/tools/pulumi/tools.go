//go:build tools

// Package tools pins the real Pulumi programs that tests and the quickstart run. It is a separate
// module, so that none of the Pulumi engine can be linked into the product.
package tools

import (
	_ "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"
	_ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
)
