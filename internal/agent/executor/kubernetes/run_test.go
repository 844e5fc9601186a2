package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/workflow"
)

// prepare prepares a new job.
func (s *space) prepare(t *testing.T, e *Executor, change ...func(*executor.Spec)) executor.Handle {
	t.Helper()
	spec := s.spec()
	spec.JobID, spec.Epoch, spec.Owner = fmt.Sprintf("job-%d", spaces.Add(1)), 1, "owner"
	for _, c := range change {
		c(&spec)
	}
	h, err := e.Prepare(t.Context(), spec, func(string) {})
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return h
}

// run starts a job and waits until it runs.
func (s *space) run(t *testing.T, e *Executor, h executor.Handle, launch []byte) {
	t.Helper()
	if err := e.Start(t.Context(), h, launch); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := e.AwaitStart(t.Context(), h, func(string) {}); err != nil {
		t.Fatalf("AwaitStart: %v", err)
	}
}

func (s *space) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret := new(corev1.Secret)
	if err := s.client.rest.Get().Namespace(s.name).Resource("secrets").Name(name).Do(t.Context()).Into(secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestRegistryCredentials(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	login := &workflow.ImageCredentials{Username: "robot", Password: "registry-password"}
	h := s.prepare(t, e, func(spec *executor.Spec) {
		spec.Image = &workflow.Image{Reference: spec.Image.Reference, Credentials: login}
	})
	launch, err := json.Marshal(map[string]any{
		"actions":    []program.Action{{Forever: true}},
		"definition": map[string]any{"image": workflow.Image{Reference: "registry.example.com/team/image:1", Credentials: login}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), h, launch); err != nil {
		t.Fatalf("Start: %v", err)
	}
	name := jobOf(t, h).Name
	pod, err := s.client.pod(t.Context(), s.name, name)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name}) {
		t.Errorf("the pod has the credentials %v", pod.Spec.ImagePullSecrets)
	}
	secret := s.secret(t, name)
	var config struct {
		Auths map[string]struct {
			Username, Password string
			Auth               []byte
		}
	}
	if err := json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config); err != nil {
		t.Fatal(err)
	}
	got := config.Auths["registry.example.com"]
	if secret.Type != corev1.SecretTypeDockerConfigJson || got.Username != "robot" || got.Password != "registry-password" || string(got.Auth) != "robot:registry-password" {
		t.Errorf("the Secret of type %s has the logins %+v", secret.Type, config)
	}
	if owners := secret.OwnerReferences; len(owners) != 1 || owners[0].UID != pod.UID {
		t.Errorf("the Secret has the owners %v", owners)
	}
	if err := e.AwaitStart(t.Context(), h, func(string) {}); err != nil {
		t.Fatalf("AwaitStart: %v", err)
	}
	for key, data := range s.secret(t, name).Data {
		if bytes.Contains(data, []byte("registry-password")) || bytes.Contains(data, []byte("actions")) {
			t.Errorf("a started job's Secret still has %s: %s", key, data)
		}
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if left := s.objects(name); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}

// eventually waits until a condition holds.
func (s *space) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("within a minute, it did not happen that %s", what)
		}
	}
}

// TestSpoolAtExit checks that the sidecar's output is complete although it prints much and exits.
func TestSpoolAtExit(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	const size = 3 << 20
	var jobs sync.WaitGroup
	for range 4 {
		h := s.prepare(t, e)
		jobs.Go(func() {
			if err := e.Start(t.Context(), h, launchDocument(t, program.Action{Spool: size})); err != nil {
				t.Errorf("Start: %v", err)
				return
			}
			if exit, err := e.Wait(t.Context(), h); err != nil || !exit.Success() {
				t.Errorf("Wait: %+v, %v", exit, err)
			}
			dir := t.TempDir()
			if err := e.CopySpool(t.Context(), h, dir); err != nil {
				t.Errorf("CopySpool: %v", err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, filepath.Base(program.SpoolFile))); err != nil || !bytes.Equal(got, program.Noise(size)) {
				t.Errorf("the copy has %d of %d bytes, %v", len(got), size, err)
			}
			if err := e.Remove(t.Context(), h); err != nil {
				t.Errorf("Remove: %v", err)
			}
		})
	}
	jobs.Wait()
}

// TestSpoolOfReportedJob copies the spool of a job whose server has its log and result.
func TestSpoolOfReportedJob(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	h := s.prepare(t, e)
	s.run(t, e, h, launchDocument(t, program.Action{Spool: 100}, program.Action{Result: `{"exitCode":0,"status":"succeeded","reported":true}`}))
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Result == nil {
		t.Fatalf("Wait: %+v, %v", exit, err)
	}
	dir := t.TempDir()
	if err := e.CopySpool(t.Context(), h, dir); err != nil {
		t.Errorf("CopySpool: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the copy has the files %v, %v", entries, err)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestForeignDeletion deletes pods as an administrator.
func TestForeignDeletion(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	for name, test := range map[string]struct {
		grace string
		lost  bool // nobody sees the end of the runner
	}{
		"with a grace period": {"2", false},
		"by force":            {"0", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := s.prepare(t, e)
			s.run(t, e, h, launchDocument(t, program.Action{Spool: 100_000}, program.Action{Forever: true}))
			var exit executor.Exit
			ended := make(chan error, 1)
			go func() {
				var err error
				exit, err = e.Wait(t.Context(), h)
				ended <- err
			}()
			_, w, err := e.open(h)
			if err != nil {
				t.Fatal(err)
			}
			pod := jobOf(t, h).Name
			s.eventually(t, "Wait waits", func() bool { return w.awaited(pod) })
			if out, err := s.cluster.Kubectl(t.Context(), "delete", "pod", pod, "--namespace", s.name, "--grace-period", test.grace, fmt.Sprintf("--force=%t", test.lost), "--wait=false"); err != nil {
				t.Fatalf("%s, %v", out, err)
			}
			if err := <-ended; err != nil {
				t.Fatalf("Wait: %v", err)
			}
			if exit.Success() || exit.Lost != test.lost || exit.Reason != workflow.ReasonEvicted || exit.Detail == "" {
				t.Errorf("Wait: %+v", exit)
			}
			dir := t.TempDir()
			err = e.CopySpool(t.Context(), h, dir)
			got, _ := os.ReadFile(filepath.Join(dir, filepath.Base(program.SpoolFile)))
			if !test.lost && (err != nil || len(got) != 100_000) {
				t.Errorf("the copy of the spool has %d bytes, %v", len(got), err)
			}
			if err := e.Remove(t.Context(), h); err != nil {
				t.Errorf("Remove: %v", err)
			}
			if left := s.objects(pod); len(left) > 0 {
				t.Errorf("leftovers: %q", left)
			}
		})
	}
	t.Run("before the start", func(t *testing.T) {
		e := s.open(t, Options{Pods: s.builder(podspec.Config{Template: `{"spec":{"nodeSelector":{"missing":"label"}}}`})})
		defer e.Close()
		h := s.prepare(t, e)
		if err := e.Start(t.Context(), h, launchDocument(t)); err != nil {
			t.Fatalf("Start: %v", err)
		}
		told := make(chan string, 10)
		ended := make(chan error, 1)
		go func() { ended <- e.AwaitStart(t.Context(), h, func(line string) { told <- line }) }()
		if line := <-told; !strings.Contains(line, "The pod waits for a node") {
			t.Errorf("progress %q", line)
		}
		if out, err := s.cluster.Kubectl(t.Context(), "delete", "pod", jobOf(t, h).Name, "--namespace", s.name); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
		wantFailure(t, <-ended, workflow.ReasonEvicted, "was deleted before it started")
		if left := s.objects(jobOf(t, h).Name); len(left) > 0 {
			t.Errorf("leftovers: %q", left)
		}
	})
}
