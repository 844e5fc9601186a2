package main

import (
	"os/exec"
	"testing"
)

// buildProgram compiles the Pulumi program together with an example of its use.
func buildProgram(t *testing.T, example string) program {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	p, err := compile(t.Context(), t.TempDir(), example)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// evaluate returns the program's objects.
func (p program) evaluate(t *testing.T, config map[string]string) objects {
	t.Helper()
	list, err := p.objects(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	for _, o := range list {
		all.add(t, o)
	}
	return all
}
