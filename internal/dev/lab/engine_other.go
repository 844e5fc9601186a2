//go:build !linux

package lab

import (
	"context"
	"errors"
)

// StartEngine returns an error, because a private engine requires Linux.
func StartEngine(context.Context, string, ...string) (*Engine, error) {
	reason, _ := PrivateEngineAvailable()
	return nil, errors.New(reason)
}
