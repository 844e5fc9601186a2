//go:build tools

// Package tools pins the linters that `make lint` builds, apart from the
// product's own module so that their dependencies never mix with it.
package tools

import (
	_ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
	_ "mvdan.cc/gofumpt"
)
