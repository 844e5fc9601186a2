//go:build !linux

package lab

import (
	"context"
	"errors"
)

// StartEngine refuses: a private engine needs Linux.
func StartEngine(context.Context, string, ...string) (*Engine, error) {
	reason, _ := PrivateEngineAvailable()
	return nil, errors.New(reason)
}
