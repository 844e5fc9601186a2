package lockfiles_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/runner/lockfiles"
	"workflowagent/internal/runner/pulumi"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, []byte(text), 0o700))
	}
}

// program returns a program in the directory app of a checkout, with stand-ins for its tools.
func program(t *testing.T, runtime string, files map[string]string) lockfiles.Program {
	t.Helper()
	root, bin := t.TempDir(), t.TempDir()
	write(t, bin, map[string]string{"node": "#!/bin/sh\necho 1\n", "go": "#!/bin/sh\necho 1\n", "python3": "#!/bin/sh\necho 1\n"})
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	write(t, root, map[string]string{"app/Pulumi.yaml": "name: a"})
	write(t, root, files)
	dir := filepath.Join(root, "app")
	return lockfiles.Program{
		Root: root, Dir: dir, File: filepath.Join(dir, "Pulumi.yaml"), Environ: os.Environ(),
		Project: pulumi.Project{Runtime: runtime, VirtualEnv: "venv"},
	}
}

func TestDoubts(t *testing.T) {
	lock := "app/package-lock.json"
	for name, tt := range map[string]struct {
		runtime string
		files   map[string]string
		doubt   bool
	}{
		"npm":              {"nodejs", map[string]string{lock: "{}", "app/package.json": "{}"}, false},
		"yarn, above":      {"nodejs", map[string]string{"yarn.lock": "", "app/package.json": "{}"}, false},
		"no lock file":     {"nodejs", map[string]string{"app/package.json": "{}"}, true},
		"install script":   {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"scripts":{"postinstall":"make"}}`}, true},
		"other script":     {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"scripts":{"test":"make"}}`}, false},
		"directory":        {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"dependencies":{"a":"file:../a"}}`}, true},
		"path":             {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"devDependencies":{"a":"../a"}}`}, true},
		"archive":          {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"dependencies":{"a":"a-1.0.tgz"}}`}, true},
		"versions":         {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"main":"./bin/","dependencies":{"a":"^1.0.0"}}`}, false},
		"workspaces above": {"nodejs", map[string]string{lock: "{}", "app/package.json": "{}", "package.json": `{"workspaces":["app"]}`}, true},
		"not JSON":         {"nodejs", map[string]string{lock: "{}", "app/package.json": "{"}, true},
		"pip":              {"python", map[string]string{"app/requirements.txt": "pulumi==3.1\n"}, false},
		"pip, other file":  {"python", map[string]string{"app/requirements.txt": "-r ../base.txt\n"}, true},
		"pip, directory":   {"python", map[string]string{"app/requirements.txt": "./lib\n"}, true},
		"pip, usual forms": {"python", map[string]string{"app/requirements.txt": "# all\n\npulumi\npulumi-aws[x,y]>=6.0,<7 ; python_version < \"3.13\" # why\n" +
			"a==1.0 --hash=sha256:ab \\\n    --hash=sha256:cd\r\n"}, false},
		"pip, path":           {"python", map[string]string{"app/requirements.txt": "libs/mypkg\n"}, true},
		"pip, wheel":          {"python", map[string]string{"app/requirements.txt": "x-1.0-py3-none-any.whl\n"}, true},
		"pip, short option":   {"python", map[string]string{"app/requirements.txt": "a\n-rbase.txt\n"}, true},
		"pip, links":          {"python", map[string]string{"app/requirements.txt": "--find-links wheels\na\n"}, true},
		"pip, address":        {"python", map[string]string{"app/requirements.txt": "a @ git+https://example.com/a\n"}, true},
		"patched":             {"nodejs", map[string]string{lock: "{}", "app/package.json": `{"pnpm":{"patchedDependencies":{}}}`}, true},
		"uv":                  {"python", map[string]string{"app/uv.lock": "", "app/pyproject.toml": "[project]\n"}, false},
		"uv, directory":       {"python", map[string]string{"app/uv.lock": "", "app/pyproject.toml": "a = { path = \"../a\" }"}, true},
		"setup.py":            {"python", map[string]string{"app/requirements.txt": "", "app/setup.py": ""}, true},
		"go":                  {"go", map[string]string{"go.mod": "module a", "go.sum": ""}, false},
		"go without go.sum":   {"go", map[string]string{"go.mod": "module a"}, true},
		"dotnet":              {"dotnet", map[string]string{"app/a.csproj": "", "app/packages.lock.json": "{}"}, true},
		"java":                {"java", map[string]string{"app/pom.xml": ""}, true},
		"lock is a directory": {"nodejs", map[string]string{lock + "/x": "{}", "app/package.json": "{}"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			stamp, err := lockfiles.Describe(program(t, tt.runtime, tt.files))
			if _, doubt := errors.AsType[*lockfiles.Doubt](err); doubt != tt.doubt || err == nil == doubt {
				t.Errorf("got %+v, %v", stamp, err)
			}
		})
	}
	p := program(t, "nodejs", map[string]string{lock: "{}"})
	must.OK(t, os.Remove(filepath.Join(p.Root, lock)))
	must.OK(t, os.Symlink("/etc/hostname", filepath.Join(p.Root, lock)))
	if stamp, err := lockfiles.Describe(p); err == nil {
		t.Errorf("a link as a lock file: %+v", stamp)
	}
}

func TestDigest(t *testing.T) {
	p := program(t, "nodejs", map[string]string{"app/package-lock.json": "{}", "app/package.json": "{}"})
	last := must.Get(lockfiles.Describe(p))(t)
	if again := must.Get(lockfiles.Describe(p))(t); *again != *last || again.Dir != filepath.Join("app", "node_modules") {
		t.Errorf("got %+v after %+v", again, last)
	}
	for name, change := range map[string]func(){
		"lock":     func() { write(t, p.Dir, map[string]string{"package-lock.json": "{ }"}) },
		"manifest": func() { write(t, p.Dir, map[string]string{"package.json": "{ }"}) },
		"project":  func() { write(t, p.Dir, map[string]string{"Pulumi.yaml": "name: b"}) },
		"new file": func() { write(t, p.Root, map[string]string{".npmrc": "registry=http://127.0.0.1"}) },
		"setting":  func() { p.Environ = append(p.Environ, "npm_config_registry=http://127.0.0.1") },
	} {
		change()
		now := must.Get(lockfiles.Describe(p))(t)
		if now.Digest == last.Digest {
			t.Errorf("%s: the digest did not change", name)
		}
		last = now
	}
	p.Secrets = []string{"npm_token"}
	p.Environ = append(p.Environ, "npm_token=a")
	last = must.Get(lockfiles.Describe(p))(t)
	p.Environ[len(p.Environ)-1] = "npm_token=b"
	if now := must.Get(lockfiles.Describe(p))(t); now.Digest != last.Digest {
		t.Error("the digest depends on the value of a secret")
	}
	if last.Complete(p.Root) {
		t.Error("complete without node_modules")
	}
	must.OK(t, os.Symlink("/", filepath.Join(p.Dir, "node_modules")))
	if last.Complete(p.Root) {
		t.Error("complete with a link")
	}
	must.OK(t, os.Remove(filepath.Join(p.Dir, "node_modules")))
	must.OK(t, os.Mkdir(filepath.Join(p.Dir, "node_modules"), 0o700))
	if !last.Complete(p.Root) {
		t.Error("not complete")
	}
}
