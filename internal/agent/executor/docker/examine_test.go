package docker

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

func TestEngineExamine(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	facts, err := e.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if facts.Host != host || facts.Version == "" || facts.APIVersion == "" || facts.OS != "linux" || facts.Arch != runtime.GOARCH ||
		facts.RootDirectory == "" || facts.Origin != "the configuration" {
		t.Errorf("got %+v", facts)
	}
	if arch, err := e.EnsureImage(t.Context(), testImage, func(string) {}); err != nil || arch != runtime.GOARCH {
		t.Errorf("the image is for %q, %v", arch, err)
	}
	if _, err := e.EnsureImage(t.Context(), "nobody/nothing:1", func(string) {}); err == nil || !strings.Contains(err.Error(), "pull_image is false") {
		t.Errorf("an absent image: %v", err)
	}
	gone := newExecutor(t, Options{Config: Config{Host: "unix:///does/not/exist.sock"}})
	defer gone.Close()
	if _, err := gone.Examine(t.Context()); err == nil || !strings.Contains(err.Error(), "/does/not/exist.sock") {
		t.Errorf("without an engine: %v", err)
	}
}

func TestEngineRemoveRunners(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	s := spec(testImage)
	s.JobID, s.Epoch, s.Owner = "removerunners", 1, "owner-"+t.Name()
	h, err := e.Prepare(t.Context(), s, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(context.WithoutCancel(t.Context()), h); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		t.Helper()
		volumes, err := labClient(t).VolumeList(t.Context(), client.VolumeListOptions{Filters: client.Filters{}.Add("label", labelOwner+"="+s.Owner)})
		if err != nil {
			t.Fatal(err)
		}
		return len(volumes.Items)
	}
	if n := count(); n != 1 {
		t.Fatalf("found %d volumes, want only the runner's", n)
	}
	if err := e.RemoveRunners(t.Context(), s.Owner); err != nil || count() != 0 {
		t.Errorf("RemoveRunners: %v, %d volumes remain", err, count())
	}
}
