package main

import (
	"context"
	"os/exec"
)

// step is one part of a release. Each step has its own source file.
type step struct {
	name  string
	needs []tool
	run   func(*maker, context.Context) error
}

// tool is a program that a step runs, and the Debian package that contains it.
type tool struct{ program, from string }

func steps() []step {
	return []step{
		{"keys", nil, (*maker).keys},
		{"stage", nil, (*maker).stage},
		{"archives and packages", nil, (*maker).build},
		{"images", nil, (*maker).images},
		{"Homebrew formula", nil, (*maker).formula},
		{"bills of materials", nil, (*maker).bills},
		// All steps that write files listed in the checksums must come before this one.
		{"checksums", nil, (*maker).checksums},
		{"mirror", nil, (*maker).publish},
		{"apt repository", aptTools(), (*maker).apt},
		{"yum repository", yumTools(), (*maker).yum},
		{"channels", nil, (*maker).channels},
	}
}

func missingTools(tools []tool) []string {
	var missing []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			missing = append(missing, t.program+" (package "+t.from+")")
		}
	}
	return missing
}
