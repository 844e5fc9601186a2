package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/dev/must"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	page := must.Get(os.ReadFile("../../../" + referenceFile))(t)
	want, err := reference(page)
	if err != nil || !bytes.Equal(page, want) {
		t.Errorf("%s is out of date (%v): run make generate", referenceFile, err)
	}
	if got, err := os.ReadFile("../../../" + sampleFile); err != nil || !bytes.Equal(got, sample()) {
		t.Errorf("%s is out of date (%v): run make generate", sampleFile, err)
	}
	for _, group := range config.Table().Groups {
		for _, f := range group.Fields {
			if !strings.Contains(string(page), "`"+f.Env+"`") {
				t.Errorf("%s lacks %s", referenceFile, f.Env)
			}
			if inSample := regexp.MustCompile(`(?m)^#?` + f.Key + `: \S`).Match(sample()); inSample == group.EnvOnly {
				t.Errorf("%s: in the sample: %t", f.Key, inSample)
			}
		}
	}
}
