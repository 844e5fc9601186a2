//go:build !linux || !(amd64 || arm64)

package sandbox

func enter(Limits) (bool, error) { return false, nil }
