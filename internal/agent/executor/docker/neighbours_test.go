package docker

import (
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
)

func jobFor(t *testing.T, e *Executor, owner, id string) executor.Handle {
	t.Helper()
	s := spec(testImage)
	s.JobID, s.Epoch, s.Owner = id, 1, owner
	h, err := e.Prepare(t.Context(), s, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), h, []byte(`{"actions":[{"print":"up\n"},{"forever":true}]}`)); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestNeighboursAreLeftAlone(t *testing.T) {
	host, runnerDir := needEngine(t)
	docker := labClient(t)
	e := newExecutor(t, Options{Config: Config{Host: host, Network: "none"}, WorkingDirectory: runnerDir})
	defer e.Close()
	dead := jobFor(t, e, "owner-one", "neighbours-dead")
	alive := jobFor(t, e, "owner-one", "neighbours-alive")
	other := jobFor(t, e, "owner-two", "neighbours-other")
	// This container has a job's name, but not the executor's labels.
	people, err := docker.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name:   executor.ObjectName("owner-one", "neighbours-people", 1),
		Config: &container.Config{Image: testImage, Entrypoint: []string{"/x"}, Labels: map[string]string{"owner": "owner-one"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	removed, err := executor.Sweep(t.Context(), e, "owner-one", time.Now(), 0, func(h executor.Handle) bool { return h.JobID == alive.JobID })
	if err != nil || len(removed) != 1 || removed[0].JobID != dead.JobID {
		t.Fatalf("Sweep removed %+v, %v", removed, err)
	}
	if left := objects(t, jobOf(t, dead).Name, ""); len(left) > 0 {
		t.Errorf("leftovers of the dead job: %q", left)
	}
	for _, h := range []executor.Handle{alive, other} {
		found, err := docker.ContainerInspect(t.Context(), jobOf(t, h).Name, client.ContainerInspectOptions{})
		if err != nil || !found.Container.State.Running || len(objects(t, jobOf(t, h).Name, "")) != 2 {
			t.Errorf("job %s of a neighbour was changed: %v", h.JobID, err)
		}
	}
	if _, err := docker.ContainerInspect(t.Context(), people.ID, client.ContainerInspectOptions{}); err != nil {
		t.Error("a container without the executor's labels was changed:", err)
	}
	if _, err := docker.ContainerRemove(t.Context(), people.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Error(err)
	}
	for _, h := range []executor.Handle{alive, other} {
		if err := e.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
}

// TestOldRunnersGo checks that volumes with old runners are removed: unused volumes immediately,
// and volumes in use when the agent starts again.
func TestOldRunnersGo(t *testing.T) {
	host, runnerDir := needEngine(t)
	docker := labClient(t)
	owner := "owner-" + t.Name()
	volume := func(name, owner string) string {
		t.Helper()
		_, err := docker.VolumeCreate(t.Context(), client.VolumeCreateOptions{Name: name, Labels: map[string]string{
			labelOwner: owner, labelKind: kindRunner, labelArch: engineArch(t, docker),
		}})
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	unused, used, foreign := volume("wfold-unused", owner), volume("wfold-used", owner), volume("wfold-foreign", owner+"-else")
	user, err := docker.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config:     &container.Config{Image: testImage, Entrypoint: []string{"/x"}},
		HostConfig: &container.HostConfig{Binds: []string{used + ":/mnt"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		t.Helper()
		list, err := docker.VolumeList(t.Context(), client.VolumeListOptions{Filters: client.Filters{}.Add("name", "wfold-")})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range list.Items {
			names = append(names, v.Name)
		}
		slices.Sort(names)
		return names
	}
	run := func() {
		t.Helper()
		e := newExecutor(t, Options{Config: Config{Host: host, Network: "none"}, WorkingDirectory: runnerDir})
		defer e.Close()
		h := jobFor(t, e, owner, "oldrunners")
		if err := e.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	run()
	if got := left(); !slices.Equal(got, []string{foreign, used}) {
		t.Errorf("after an update, the volumes are %q; want %s removed", got, unused)
	}
	if _, err := docker.ContainerRemove(t.Context(), user.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	run()
	if got := left(); !slices.Equal(got, []string{foreign}) {
		t.Errorf("after the next start, the volumes are %q", got)
	}
	if _, err := docker.VolumeRemove(t.Context(), foreign, client.VolumeRemoveOptions{}); err != nil {
		t.Error(err)
	}
}

func engineArch(t *testing.T, docker *client.Client) string {
	t.Helper()
	version, err := docker.ServerVersion(t.Context(), client.ServerVersionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return version.Arch
}
