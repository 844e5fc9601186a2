package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/workflow"
)

// TestKeysOfTheMirror checks that a job gets the version of pulumi that it selects, and that a job whose
// version cannot be brought never reaches a runner.
func TestKeysOfTheMirror(t *testing.T) {
	dir := t.TempDir()
	sums := filepath.Join(dir, "sums.txt")
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	name := func(version string) string { return "pulumi-v" + version + "-" + runtime.GOOS + "-" + arch + ".tar.gz" }
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	text := []byte("#!/bin/sh\n")
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "pulumi/pulumi", Mode: 0o755, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Write(text)
	for _, err := range []error{
		err, w.Close(), z.Close(),
		os.WriteFile(filepath.Join(dir, name("3.9.1")), archive.Bytes(), 0o600),
		os.WriteFile(filepath.Join(dir, name("3.8.0")), []byte("changed"), 0o600),
		os.WriteFile(sums, fmt.Appendf(nil, "%x  %s\n%x  %s\n", sha256.Sum256(archive.Bytes()), name("3.9.1"), sha256.Sum256(nil), name("3.8.0")), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := newPlane(t, false)
	for _, version := range []string{">=3.9 <4", "3.8", "3.7", ""} {
		p.plan(workflow.TypeDeployment)
		p.jobs[len(p.jobs)-1].definition.Deployment.PulumiVersion = version
	}
	a := p.runAgent(t, "pulumi_mirror="+dir, "pulumi_checksums_file="+sums, "polling_interval=100ms")
	a.until("four results", func() bool { _, _, results, _ := p.look(); return len(results) == 4 })
	_, _, results, logs := p.look()
	dirs := map[string]int{}
	for _, launch := range a.launches() {
		dirs[launch.PulumiDir]++
		if launch.PulumiDir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(launch.PulumiDir, "pulumi")); err != nil || !strings.HasPrefix(launch.PulumiDir, filepath.Join(a.dir, "state", "pulumi")) {
			t.Errorf("the job's pulumi is in %s: %v", launch.PulumiDir, err)
		}
	}
	if len(dirs) != 2 || dirs[""] != 2 {
		t.Errorf("the jobs get pulumi from %v, want one release, and twice none", dirs)
	}
	refused := 0
	for _, r := range results {
		if r.Reason == workflow.ReasonLaunch && strings.Contains(r.Message, "does not have the pinned SHA-256 sum") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d jobs fail because of the changed archive: %+v", refused, results)
	}
	for _, want := range []string{"Using pulumi 3.9.1 of the mirror", "mirror has no pulumi for " + runtime.GOOS + "/" + runtime.GOARCH + " that 3.7 selects"} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log lacks %q:\n%s", want, logs)
		}
	}
}
