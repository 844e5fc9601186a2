//go:build !linux

package lab

import "errors"

func mountOverlay(string, string) error { return errors.ErrUnsupported }
func unmount(string) error              { return errors.ErrUnsupported }
