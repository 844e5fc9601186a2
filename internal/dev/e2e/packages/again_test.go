package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

// TestPackagesReproducible checks that builds of a commit in different directories and time zones
// give the same bytes, except for an RPM's signature, which contains the time of signing.
func TestPackagesReproducible(t *testing.T) {
	if reason, ok := lab.ReleasesAvailable(); !ok {
		t.Skip(reason)
	}
	root := must.Get(lab.Root())(t)
	build := func(env ...string) string {
		t.Helper()
		checkout, dist := filepath.Join(t.TempDir(), "checkout"), t.TempDir()
		harness.Say(t, root, "git", "clone", "--quiet", "--no-hardlinks", root, checkout)
		run := lab.Packages{Checkout: checkout, Version: lab.FirstRelease, Dist: dist, Env: append(os.Environ(), env...)}
		must.OK(t, run.Make(t.Context(), os.Stderr))
		return filepath.Join(dist, "release")
	}
	first := build("TZ=UTC")
	second := build("TZ=Asia/Tokyo", "LANG=C.UTF-8", "SOURCE_DATE_EPOCH=1")
	entries := must.Get(os.ReadDir(first))(t)
	compared := 0
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case strings.HasPrefix(name, release.ChecksumsFile):
			continue // holds the sum of the RPM
		case strings.HasSuffix(name, ".rpm"):
			if _, err := exec.LookPath("rpm"); err != nil {
				continue
			}
			const digests = "%{SHA256HEADER} %{PAYLOADDIGEST}"
			one := harness.Say(t, first, "rpm", "--query", "--nosignature", "--package", "--queryformat", digests, name)
			if two := harness.Say(t, second, "rpm", "--query", "--nosignature", "--package", "--queryformat", digests, name); one != two {
				t.Errorf("%s differs in more than its signature: %s and %s", name, one, two)
			}
		default:
			one := harness.Read(t, filepath.Join(first, name))
			two := harness.Read(t, filepath.Join(second, name))
			if !bytes.Equal(one, two) {
				t.Errorf("%s: %s", name, difference(one, two))
			}
		}
		compared++
	}
	if compared < 8 { // two archives with their bills, two .debs and two .rpms
		t.Errorf("only %d files were compared: %v", compared, entries)
	}
}

func difference(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("the two differ from byte %d of %d and %d on", i, len(a), len(b))
		}
	}
	return fmt.Sprintf("one has %d bytes, the other %d", len(a), len(b))
}
