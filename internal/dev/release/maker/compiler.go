package main

import (
	"fmt"
	"go/version"
	"strings"
)

// minimumGo is the oldest Go version that may build a release. Raise it with each Go release that
// fixes a vulnerability in the programs.
const minimumGo = "go1.26.8"

func checkGo(program, built string) error {
	// Experiments and vendors follow after a space or a dash: go1.26.8 X:nogreenteagc.
	plain, _, _ := strings.Cut(built, " ")
	if !version.IsValid(plain) || version.Compare(plain, minimumGo) < 0 {
		return fmt.Errorf("%s was built with %q, but a release needs the security fixes in %s or later: install that version and rebuild", program, built, minimumGo)
	}
	return nil
}
