package main

import (
	"fmt"
	"go/version"
	"strings"
)

// minimumGo is the oldest Go that a release may be built with. It is raised with each
// release of Go that fixes a vulnerability in what the programs use.
const minimumGo = "go1.26.8"

// checkGo returns an error if a program was built with a Go that is older than minimumGo.
func checkGo(program, built string) error {
	// Experiments and vendors follow after a space or a dash: go1.26.8 X:nogreenteagc.
	plain, _, _ := strings.Cut(built, " ")
	if !version.IsValid(plain) || version.Compare(plain, minimumGo) < 0 {
		return fmt.Errorf("%s is built with %q, and a release needs %s or later, which has the security fixes of Go: install it and try again", program, built, minimumGo)
	}
	return nil
}
