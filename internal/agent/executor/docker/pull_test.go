package docker

import (
	"context"
	"crypto/rand"
	"debug/elf"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

const (
	registryUser     = "puller"
	registryPassword = "registry-password-8484"
)

func newRegistry(t *testing.T, o lab.RegistryOptions) *lab.Registry {
	t.Helper()
	host, _ := needEngine(t)
	if !strings.HasPrefix(host, "unix://") {
		t.Skip("the engine is on another host and cannot reach a registry on this host's loopback")
	}
	r, err := lab.StartRegistry(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func picture(arch string) lab.Picture {
	return lab.Picture{Arch: arch, Files: map[string]string{"etc/passwd": "root:x:0:0::/:/bin/sh\n"}}
}

// push stores an image under a unique name in the registry, and removes the image from the engine
// after the test.
func push(t *testing.T, r *lab.Registry, p lab.Picture) (tagged, pinned string) {
	t.Helper()
	p.Files["unique"] = rand.Text()
	tagged, pinned, err := r.Push(t.Context(), "team/"+strings.ToLower(rand.Text()), "1", p)
	if err != nil {
		t.Fatal(err)
	}
	docker := labClient(t)
	t.Cleanup(func() {
		for _, ref := range []string{tagged, pinned} {
			_, _ = docker.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true}) // the pull may have failed
		}
	})
	return tagged, pinned
}

func pullInto(t *testing.T, o Options, image *workflow.Image) (said []string, err error) {
	t.Helper()
	o.Host, o.WorkingDirectory = engine.lab.Host, engine.runnerDir
	e := newExecutor(t, o)
	defer e.Close()
	s := executor.Spec{JobID: "pull", Epoch: 1, Owner: "owner-" + t.Name(), Image: image}
	h, err := e.Prepare(t.Context(), s, func(line string) { said = append(said, line) })
	if err == nil {
		if err := e.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if left := objects(t, executor.ObjectName(s.Owner, s.JobID, s.Epoch), ""); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
	return said, err
}

// wantRefusal checks that a pull failed with a one-line message that contains all of want and no
// secret.
func wantRefusal(t *testing.T, err error, want ...string) {
	t.Helper()
	var failed *executor.Error
	if !errors.As(err, &failed) || failed.Reason != workflow.ReasonImage {
		t.Fatalf("got %v, want a failure about the image", err)
	}
	t.Log(failed.Message)
	for _, words := range want {
		if !strings.Contains(failed.Message, words) {
			t.Errorf("the error does not contain %q: %s", words, failed.Message)
		}
	}
	for _, secret := range []string{registryPassword, "wrong-password"} {
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte(registryUser+":"+secret))) {
			t.Errorf("the error contains a password: %v", err)
		}
	}
	if strings.Contains(failed.Message, "\n") {
		t.Errorf("the error has more than one line: %q", failed.Message)
	}
}

func TestPullPublic(t *testing.T) {
	r := newRegistry(t, lab.RegistryOptions{})
	p := picture(runtime.GOARCH)
	p.Pad = make([]byte, 20<<20)
	_, _ = rand.Read(p.Pad)
	tagged, pinned := push(t, r, p)
	for _, ref := range []string{tagged, pinned} {
		said, err := pullInto(t, Options{Config: Config{PullImage: true}}, &workflow.Image{Reference: ref})
		if err != nil {
			t.Fatal(err)
		}
		if len(said) > 6 || !strings.Contains(strings.Join(said, "\n"), "Pulling image "+ref) {
			t.Errorf("a short pull reported %d lines: %q", len(said), said)
		}
	}
	for image, want := range map[string]string{
		strings.TrimSuffix(tagged, ":1") + ":missing": "does not have it",
		r.Host + "/team/missing:1":                    "does not have it",
		strings.TrimSuffix(tagged, ":1") + "@sha256:" + strings.Repeat("0123456789", 6) + "abcd": "does not have it",
	} {
		_, err := pullInto(t, Options{Config: Config{PullImage: true}}, &workflow.Image{Reference: image})
		wantRefusal(t, err, image, want, r.Host)
	}
}

func TestPullPolicy(t *testing.T) {
	r := newRegistry(t, lab.RegistryOptions{})
	tagged, _ := push(t, r, picture(runtime.GOARCH))
	image := &workflow.Image{Reference: tagged}
	_, err := pullInto(t, Options{}, image)
	wantRefusal(t, err, tagged, "pull_image is false")
	if _, err := pullInto(t, Options{Config: Config{PullImage: true}}, image); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pullInto(t, Options{}, image); err != nil {
		t.Error("with pull_image false and the image present, the registry must not matter:", err)
	}
	_, err = pullInto(t, Options{Config: Config{PullImage: true}}, image)
	wantRefusal(t, err, tagged, "cannot be reached", "pull_image: false")
}

func helper(t *testing.T, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPullWithCredentials(t *testing.T) {
	r := newRegistry(t, lab.RegistryOptions{Username: registryUser, Password: registryPassword})
	right := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword))
	wrong := base64.StdEncoding.EncodeToString([]byte(registryUser + ":wrong-password"))
	answers := fmt.Sprintf(`read -r server; test "$1 $server" = "get %s" || { echo "credentials not found in native keychain"; exit 1; }
test -z "$PULUMI_AGENT_TOKEN" || { echo "it sees the token of the agent"; exit 1; }
echo '{"ServerURL":"%s","Username":"%s","Secret":"%s"}'`, r.Host, r.Host, registryUser, registryPassword)
	t.Setenv("PULUMI_AGENT_TOKEN", "agent-token-9595")
	for _, tc := range []struct {
		name   string
		own    *workflow.ImageCredentials
		config string
		script string   // script of docker-credential-test
		want   []string // expected parts of the error; nil if the pull must succeed
	}{
		{name: "the job's", own: &workflow.ImageCredentials{Username: registryUser, Password: registryPassword}},
		{
			name: "the job's before the host's", own: &workflow.ImageCredentials{Username: registryUser, Password: registryPassword},
			config: `{"auths":{"` + r.Host + `":{"auth":"` + wrong + `"}}}`,
		},
		{name: "auths", config: `{"auths":{"` + r.Host + `":{"auth":"` + right + `"}}}`},
		{name: "auths by URL", config: `{"auths":{"http://` + r.Host + `/v2/":{"auth":"` + right + `"}}}`},
		{name: "credHelpers", config: `{"credHelpers":{"` + r.Host + `":"test"}}`, script: answers},
		{name: "credsStore", config: `{"auths":{"` + r.Host + `":{}},"credsStore":"test"}`, script: answers},
		{
			name: "credsStore without credentials", config: `{"auths":{"` + r.Host + `":{"auth":"` + right + `"}},"credsStore":"test"}`,
			script: `echo "credentials not found in native keychain"; exit 1`,
		},
		{name: "none", want: []string{"rejects the agent", "no credentials"}},
		{name: "credentials of another registry", config: `{"auths":{"127.0.0.1:1":{"auth":"` + right + `"}}}`, want: []string{"rejects the agent", "no credentials"}},
		{name: "the job's credentials are wrong", own: &workflow.ImageCredentials{Username: registryUser, Password: "wrong-password"}, want: []string{"rejects the agent", "the job's"}},
		{name: "the host's credentials are wrong", config: `{"auths":{"` + r.Host + `":{"auth":"` + wrong + `"}}}`, want: []string{"rejects the agent", "docker configuration"}},
		{name: "no such helper", config: `{"credsStore":"absent"}`, want: []string{"docker-credential-absent", "PATH"}},
		{name: "helper fails", config: `{"credsStore":"test"}`, script: `echo "the keychain is locked"; exit 1`, want: []string{"docker-credential-test failed", "agent's log"}},
		{name: "helper fails with a secret", config: `{"credsStore":"test"}`, script: `echo '{"Secret":"` + registryPassword + `"}'; exit 1`, want: []string{"docker-credential-test"}},
		{name: "the helper's output is invalid", config: `{"credsStore":"test"}`, script: `echo ` + registryPassword, want: []string{"not JSON"}},
		{name: "helper with a path", config: `{"credsStore":"../test"}`, want: []string{"not the name of a credential helper"}},
		{name: "invalid configuration", config: `{"auths":`, want: []string{"config.json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tagged, _ := push(t, r, picture(runtime.GOARCH))
			home := t.TempDir()
			if tc.config != "" {
				if err := errors.Join(os.Mkdir(filepath.Join(home, ".docker"), 0o700),
					os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(tc.config), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", helper(t, "test", tc.script)+":"+os.Getenv("PATH"))
			setEnvironment(t, home, nil)
			_, err := pullInto(t, Options{Config: Config{PullImage: true}}, &workflow.Image{Reference: tagged, Credentials: tc.own})
			if tc.want != nil {
				wantRefusal(t, err, tc.want...)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPullThatStalls(t *testing.T) {
	r := newRegistry(t, lab.RegistryOptions{})
	tagged, _ := push(t, r, picture(runtime.GOARCH))
	asked := r.Hold()
	_, err := pullInto(t, Options{Config: Config{PullImage: true}, PullStall: 8 * time.Second}, &workflow.Image{Reference: tagged})
	wantRefusal(t, err, tagged, "no data arrived for 8s")
	select {
	case <-asked:
	default:
		t.Error("the engine requested no layer, so this test proves nothing")
	}
	r.Release()
	if _, err := pullInto(t, Options{Config: Config{PullImage: true}}, &workflow.Image{Reference: tagged}); err != nil {
		t.Error("a pull after one that stalled:", err)
	}
}

func TestImageForOtherProcessors(t *testing.T) {
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if other == "" {
		t.Skip("runners exist only for amd64 and arm64")
	}
	r := newRegistry(t, lab.RegistryOptions{})
	tagged, _ := push(t, r, picture(other))
	if found, _ := filepath.Glob("/proc/sys/fs/binfmt_misc/qemu-*"); len(found) > 0 {
		t.Skip("this host emulates other processors")
	}
	// Set the machine in the program's ELF header to the other architecture.
	program, err := os.ReadFile(filepath.Join(engine.runnerDir, executor.EmbeddableName))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(program[18:], uint16(map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[other]))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, executor.EmbeddableName+"-"+other), program, 0o700); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, Options{Config: Config{Host: engine.lab.Host, PullImage: true}, WorkingDirectory: dir})
	defer e.Close()
	for range 2 {
		_, err := prepare(t, e, spec(tagged))
		wantRefusal(t, err, tagged, "linux/"+other, "linux/"+runtime.GOARCH, "emulation")
	}
	if left := objects(t, executor.ObjectName("owner-"+t.Name(), strings.ToLower(t.Name()), 1), ""); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}
