//go:build !linux

package main

import "errors"

func run([]string) error { return errors.New("the namespaces of a test cluster require Linux") }
