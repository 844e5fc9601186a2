package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
)

// TestPulumiOfTheAgent checks that jobs find the agent's release of pulumi in a read-only volume, which
// they share, and that the volume goes once the agent no longer keeps the release.
func TestPulumiOfTheAgent(t *testing.T) {
	host, runnerDir := needEngine(t)
	docker := labClient(t)
	e := newExecutor(t, Options{Config: Config{Host: host, Network: "none"}, WorkingDirectory: runnerDir})
	defer e.Close()
	owner, kept := "owner-"+t.Name(), t.TempDir()
	release := func(version string) executor.Pulumi {
		t.Helper()
		dir := filepath.Join(kept, "pulumi-v"+version+"-linux-x64-00")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"pulumi", "pulumi-language-yaml"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(version), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return executor.Pulumi{Version: version, Dir: dir}
	}
	prepare := func(id string, found executor.Pulumi, failed error) (executor.Handle, error) {
		s := spec(testImage)
		s.JobID, s.Epoch, s.Owner = id, 1, owner
		s.Pulumi = func(_ context.Context, goos, goarch string) (executor.Pulumi, error) {
			if goos != "linux" || goarch != engineArch(t, docker) {
				t.Errorf("the release is for %s/%s", goos, goarch)
			}
			return found, failed
		}
		return e.Prepare(t.Context(), s, func(string) {})
	}
	has := func(h executor.Handle, version string) {
		t.Helper()
		container := jobOf(t, h).Name
		if h.PulumiDir != pulumiDir {
			t.Errorf("the job's pulumi is in %q", h.PulumiDir)
		}
		for _, name := range []string{"pulumi", "pulumi-language-yaml"} {
			got, err := readFile(t.Context(), docker, container, pulumiDir+"/"+name, 100)
			stat, statErr := docker.ContainerStatPath(t.Context(), container, client.ContainerStatPathOptions{Path: pulumiDir + "/" + name})
			if err != nil || statErr != nil || string(got) != version || stat.Stat.Mode.Perm() != 0o555 {
				t.Errorf("%s is %q, %v, %v (%v), want %q", name, got, stat.Stat.Mode, err, statErr, version)
			}
		}
		found, err := docker.ContainerInspect(t.Context(), container, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found.Container.Mounts {
			if m.Destination == pulumiDir && m.RW {
				t.Error("the job can write to its pulumi")
			}
		}
	}
	must := func(h executor.Handle, err error) executor.Handle {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	remove := func(h executor.Handle) {
		t.Helper()
		if err := e.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	volumes := func() (names []string) {
		t.Helper()
		filters := client.Filters{}.Add("label", labelOwner+"="+owner, labelKind+"="+kindPulumi)
		list, err := docker.VolumeList(t.Context(), client.VolumeListOptions{Filters: filters})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list.Items {
			names = append(names, v.Name)
		}
		return names
	}

	if h, err := prepare("pulumi-none", executor.Pulumi{}, nil); err != nil || h.PulumiDir != "" {
		t.Errorf("a job for which the mirror has nothing gets %q, %v", h.PulumiDir, err)
	} else {
		remove(h)
	}
	broken := errors.New("broken mirror")
	if _, err := prepare("pulumi-broken", executor.Pulumi{}, broken); !errors.Is(err, broken) {
		t.Errorf("a broken mirror gives %v", err)
	}
	if left := objects(t, executor.ObjectName(owner, "pulumi-broken", 1), ""); len(left) > 0 {
		t.Errorf("a job without pulumi leaves %q", left)
	}

	first := release("3.1.0")
	one := must(prepare("pulumi-one", first, nil))
	has(one, "3.1.0")
	// The second job needs nothing of the host's copy.
	if err := os.RemoveAll(filepath.Join(first.Dir, "pulumi")); err != nil {
		t.Fatal(err)
	}
	two := must(prepare("pulumi-two", first, nil))
	has(two, "3.1.0")
	if names := volumes(); len(names) != 1 {
		t.Errorf("two jobs with one release have the volumes %q", names)
	}
	remove(one)
	remove(two)
	if err := os.RemoveAll(first.Dir); err != nil {
		t.Fatal(err)
	}
	three := must(prepare("pulumi-three", release("3.2.0"), nil))
	has(three, "3.2.0")
	if names := volumes(); len(names) != 1 {
		t.Errorf("the volumes are %q, want that of the kept release", names)
	}
	remove(three)
	if err := e.RemoveRunners(t.Context(), owner); err != nil || len(volumes()) > 0 {
		t.Errorf("an agent that is removed leaves %q, %v", volumes(), err)
	}
}
