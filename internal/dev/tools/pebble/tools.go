//go:build tools

// Package tools pins the ACME authority, and its name server, that the tests of the server's certificates run. It is a
// separate module, so that none of it can be linked into the product.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
