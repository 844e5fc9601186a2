package environ_test

import (
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/environ"
	"workflowagent/internal/workflow"
)

func TestUseCaches(t *testing.T) {
	job, home, ws := t.TempDir(), t.TempDir(), t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(home, ".m2", "repository"), 0o700)) // the image's own
	d := &workflow.JobDefinition{Env: map[string]string{"NPM_CONFIG_CACHE": "/user", "GOCACHE": "/user", "GRADLE_USER_HOME": "/user"}}
	e := must.Get(environ.New(job, filepath.Join(job, "PULUMI_ENV"), []string{"HOME=" + home, "PIP_CACHE_DIR=/image"}, &protocol.Launch{}, d))(t)
	links := must.Get(e.UseCaches(filepath.Join(ws, "caches"), filepath.Join(ws, "plugins")))(t)
	vars := e.Base().Vars
	for name, want := range map[string]string{
		"NPM_CONFIG_CACHE": "/user", "npm_config_cache": "", "GOCACHE": "/user", "PIP_CACHE_DIR": "/image",
		"GOMODCACHE": filepath.Join(ws, "caches", "go-modules"), "PULUMI_HOME": "",
	} {
		if vars[name] != want {
			t.Errorf("%s is %q, want %q", name, vars[name], want)
		}
	}
	plugins := filepath.Join(home, ".pulumi", "plugins")
	if target, err := os.Readlink(plugins); err != nil || target != filepath.Join(ws, "plugins") {
		t.Errorf("plugins are in %q, %v", target, err)
	}
	for _, name := range []string{".m2/repository", ".gradle/caches"} {
		if _, err := os.Readlink(filepath.Join(home, name)); err == nil {
			t.Errorf("%s is a link", name)
		}
	}
	must.OK(t, os.WriteFile(filepath.Join(home, ".pulumi", "credentials.json"), []byte("secret"), 0o600))
	must.OK(t, e.LeaveCaches(filepath.Join(ws, "caches"), links))
	if _, err := os.Lstat(plugins); !os.IsNotExist(err) || e.Base().Vars["GOMODCACHE"] != "" {
		t.Errorf("after leaving: %v, %q", err, e.Base().Vars["GOMODCACHE"])
	}
	if entries := must.Get(os.ReadDir(filepath.Join(ws, "plugins")))(t); len(entries) != 0 {
		t.Errorf("the workspace has %v", entries)
	}
}
