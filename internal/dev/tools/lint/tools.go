//go:build tools

// Package tools pins the linters that `make lint` builds, in a separate module so that their
// dependencies never mix with the product's.
package tools

import (
	_ "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"
	_ "mvdan.cc/gofumpt"
)
