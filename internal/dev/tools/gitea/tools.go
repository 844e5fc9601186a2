//go:build tools

// Package tools pins the real Gitea that the tests of a forge's client run. It is a separate module,
// so that none of Gitea can be linked into the product.
package tools

import _ "code.gitea.io/gitea"
