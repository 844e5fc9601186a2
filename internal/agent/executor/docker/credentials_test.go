package docker

import (
	"os"
	"path/filepath"
	"testing"
)

// setEnvironment sets the environment variables that determine the engine and its credentials.
func setEnvironment(t *testing.T, home string, env map[string]string) {
	t.Helper()
	t.Setenv("HOME", home)
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_CONFIG", "DOCKER_CONTEXT", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, env[name])
	}
}

func TestRegistryConfigIsFound(t *testing.T) {
	home, moved, runtimeDir := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(path, store string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"credsStore":"`+store+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".docker", "config.json"), "home")
	write(filepath.Join(moved, "config.json"), "moved")
	write(filepath.Join(moved, "auth.json"), "file")
	write(filepath.Join(runtimeDir, "containers", "auth.json"), "podman")
	for _, tc := range []struct {
		home string
		env  map[string]string
		want string
	}{
		{home, map[string]string{"DOCKER_CONFIG": moved}, "moved"},
		{home, map[string]string{"XDG_RUNTIME_DIR": runtimeDir}, "home"},
		{t.TempDir(), map[string]string{"REGISTRY_AUTH_FILE": filepath.Join(moved, "auth.json"), "XDG_RUNTIME_DIR": runtimeDir}, "file"},
		{t.TempDir(), map[string]string{"XDG_RUNTIME_DIR": runtimeDir}, "podman"},
		{"", nil, ""},
	} {
		setEnvironment(t, tc.home, tc.env)
		got, err := readRegistryConfig()
		if err != nil || got.CredsStore != tc.want {
			t.Errorf("with %v: found %q, %v; want %q", tc.env, got.CredsStore, err, tc.want)
		}
	}
}

func TestRegistryEntryIsFound(t *testing.T) {
	config := registryConfig{Auths: map[string]registryAuth{
		hubKey:                        {Username: "hub"},
		"https://a.example/v1/":       {Username: "url"},
		"b.example:5000":              {Username: "host"},
		"https://c.example:5000/v2/x": {Username: "deep"},
	}}
	for key, want := range map[string]string{
		hubKey: "hub", "a.example": "url", "b.example:5000": "host", "c.example:5000": "deep",
		"b.example": "", "example": "", "a.example.evil": "",
	} {
		if got := config.find(key).Username; got != want {
			t.Errorf("%s: found %q, want %q", key, got, want)
		}
	}
}

func TestHelperWithToken(t *testing.T) {
	t.Setenv("PATH", helper(t, "token", `echo '{"Username":"<token>","Secret":"identity"}'`)+":"+os.Getenv("PATH"))
	auth, err := newExecutor(t, Options{}).askHelper(t.Context(), "token", "r.example")
	if err != nil || auth != (registryAuth{IdentityToken: "identity"}) {
		t.Errorf("got %+v, %v", auth, err)
	}
}
