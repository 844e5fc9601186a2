package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/settings"
	"workflowagent/internal/settings/conffile"
)

const testToken = "pul-0123456789abcdef"

func TestEnvironment(t *testing.T) {
	values := map[string]string{
		"token": "pul-from-environment", "service_url": "https://other.example.com", "working_directory": "/srv/bin",
		"shared_volume_directory": "/srv/shared", "deploy_target": "process", "single_run": "true", "pull_image": "false",
		"enabled_workflow_types": "deployment,policy_evaluation", "env_forward_allowlist": "VAR1 VAR2",
		"oidc_token_file": "/run/oidc", "organization_name": "acme", "runner_pool_id": "pool-1", "token_expiration": "1h",
		"polling_interval": "2s", "polling_interval_override": "true", "job_status_loop_interval": "3s", "request_timeout": "4s",
		"request_retry_count": "5", "request_retry_wait": "6s", "request_retry_max_wait": "7s", "circuit_breaker_failures": "8",
		"circuit_breaker_timeout": "9s", "http_server_port": "10", "http_server_address": "::1", "health_threshold": "11s",
		"syslog": "true", "log_format": "json", "log_job_output": "false", "max_concurrent_jobs": "1",
		"state_directory": "/srv/state", "allowed_images": "pulumi/*,example.com/**", "allowed_repositories": "github.com/acme/*,gitlab.com/**",
		"pulumi_mirror": "/srv/pulumi", "pulumi_checksums_file": "/srv/sums.txt",
		"ca_certificate_file": "/srv/ca.pem", "docker_network": "jobs", "docker_server_address": "172.18.0.1:8800", "docker_memory": "2g", "docker_cpus": "0.5",
		"docker_pids_limit": "12", "auto_update": "true", "update_channel": "beta", "update_url": "https://updates.example.com",
		"image": "example.com/agent:1", "image_pull_policy": "Always", "service_account_name": "worker", "num_cpus": "2",
		"mem_quantity": "4", "debug_pod": "true", "kubernetes_namespace": "jobs", "pod_template_file": "/srv/pod.yaml", "pod_start_timeout": "13s",
		"debug_pod_ttl": "14m", "pod_template": "{spec: {}}", "override_image_reference": "example.com/job:1", "docker_host": "tcp://engine:2375",
		"workspaces": "false", "workspace_max_size": "15g", "workspace_max_age": "16h", "go_mirror": "https://go.example.com",
		"npm_mirror": "https://npm.example.com", "pypi_mirror": "https://pypi.example.com/simple", "plugin_mirror": "https://plugins.example.com",
		"kubernetes_workspace_claim": "workspaces", "kubernetes_workspace_host_path": "/srv/workspaces",
	}
	var environ []string
	for _, f := range Table().Fields() {
		value, ok := values[f.Key]
		if !ok {
			t.Fatalf("%s is not in this test", f.Key)
		}
		environ = append(environ, f.Env+"= "+value+" ")
	}
	path := writeFile(t, FileName, "token: "+testToken+"\nsingle_run: false\nallowed_images: [nothing]\nservice_url: file.example.com\n")
	c, err := Load(testOptions(path, environ...))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Settings() {
		want := values[s.Key]
		if s.Key == "token" {
			want = "[REDACTED]"
		}
		if s.Value != want || s.Source.Kind != settings.FromEnv || !strings.HasPrefix(s.Source.String(), "env ") {
			t.Errorf("%s is %q from %q, want %q", s.Key, s.Value, s.Source, want)
		}
	}
	if c.Pods.Template != " {spec: {}} " {
		t.Errorf("the template is %q", c.Pods.Template)
	}
	if c.Token.Reveal() != values["token"] {
		t.Error("the token is not the one from the environment")
	}
	if got := c.HTTPServerListen(); got != "[::1]:10" {
		t.Errorf("the server listens on %q", got)
	}
}

func TestSources(t *testing.T) {
	path := writeFile(t, FileName, "# comment\ntoken: "+testToken+"\n\npolling_interval: 5s\nsyslog: \"\"\nrequest_timeout: 1m\n")
	c, err := Load(testOptions(path, "PULUMI_AGENT_REQUEST_TIMEOUT=2m", "PULUMI_AGENT_LOG_FORMAT="))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"token": path + ":2", "polling_interval": path + ":4", "syslog": "default",
		"request_timeout": "env PULUMI_AGENT_REQUEST_TIMEOUT", "log_format": "default", "no_such_key": "default",
	} {
		if got := c.Source(key).String(); got != want {
			t.Errorf("%s comes from %q, want %q", key, got, want)
		}
	}
	if c.Agent.RequestTimeout != 2*time.Minute || c.Agent.PollingInterval != 5*time.Second {
		t.Errorf("got %s and %s", c.Agent.RequestTimeout, c.Agent.PollingInterval)
	}
}

func TestBadEnvironment(t *testing.T) {
	for variable, want := range map[string]string{
		"PULUMI_AGENT_POLLING_INTERVAL=60":                "env PULUMI_AGENT_POLLING_INTERVAL: polling_interval: has no unit: write it with one, such as 30s, 5m or 1h30m",
		"PULUMI_AGENT_ENABLED_WORKFLOW_TYPES=deployment,": "env PULUMI_AGENT_ENABLED_WORKFLOW_TYPES: enabled_workflow_types: has an empty entry, number 2: remove it",
		"PULUMI_AGENT_ENABLED_WORKFLOW_TYPES=a":           "env PULUMI_AGENT_ENABLED_WORKFLOW_TYPES: enabled_workflow_types: has an unknown entry, number 1: choose from deployment, insights_scan or policy_evaluation",
		"PULUMI_AGENT_DEPLOY_TARGET=ecs":                  "env PULUMI_AGENT_DEPLOY_TARGET: deploy_target: is ecs, the ECS target, which this agent does not support: set it to docker, kubernetes or process",
		"PULUMI_AGENT_ECS_CLUSTER=main":                   "env PULUMI_AGENT_ECS_CLUSTER: ecs.cluster: belongs to the ECS target, which this agent does not support: remove it and set deploy_target to docker, kubernetes or process",
		"PULUMI_AGENT_TOKEN=pul-01234567 89abcdef":        "env PULUMI_AGENT_TOKEN: token: contains white space or control characters: paste the token again, as one word",
		"PULUMI_AGENT_DEPLOY_TARGET=kubernetes":           "image: is required because deploy_target is kubernetes: set PULUMI_AGENT_IMAGE to the image of this agent's release",
		"PULUMI_AGENT_DEBUG_POD=maybe":                    "env PULUMI_AGENT_DEBUG_POD: debug_pod: must be true or false",
	} {
		_, err := loadAndValidate(testOptions("", "PULUMI_AGENT_TOKEN="+testToken, variable))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", variable, err, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	load := func(content string, environ ...string) []string {
		t.Helper()
		path := writeFile(t, FileName, content)
		c, err := loadAndValidate(testOptions(path, environ...))
		if err != nil {
			t.Fatal(err)
		}
		var warnings []string
		for _, w := range c.Warnings() {
			warnings = append(warnings, strings.ReplaceAll(w, path, "FILE"))
		}
		return warnings
	}
	for _, tt := range []struct {
		name    string
		content string
		environ []string
		want    []string
	}{
		{name: "nothing", content: "version: v0.0.5\n"},
		{
			name:    "variables Kubernetes makes",
			environ: []string{"PULUMI_AGENT_SERVICE_PORT_8080_TCP=tcp://10.0.0.1:8080", "PULUMI_AGENT_ECS_FOO=1", "PULUMI_AGENT_EMPTY=", "PULUMI_OTHER=1"},
			want: []string{
				"the variable PULUMI_AGENT_ECS_FOO is not one of this agent's settings and has no effect",
				"the variable PULUMI_AGENT_SERVICE_PORT_8080_TCP is not one of this agent's settings and has no effect",
			},
		},
		{
			name:    "legacy keys",
			content: "version: v0.0.5\nworkflow_runners_directory: /opt\nworkflow_runners_embeddable: x\n",
			want: []string{
				"FILE:2: workflow_runners_directory: is a key of older agents and no longer has an effect: remove it, and set working_directory if the runner binaries are not next to the agent's",
				"FILE:3: workflow_runners_embeddable: is a key of older agents and no longer has an effect: remove it, and set working_directory if the runner binaries are not next to the agent's",
			},
		},
		{
			name: "forwarded variables", content: "env_forward_allowlist: [LONG, SHORT, ABSENT, DOCKER_HOST]\n",
			environ: []string{"LONG=123456", "SHORT=12345"},
			want: []string{
				"the value of SHORT is shorter than 6 characters and cannot be masked in logs",
				"ABSENT is in env_forward_allowlist but not set on this host, so jobs do not get it",
			},
		},
		{
			name: "an engine on the network", environ: []string{"DOCKER_HOST=tcp://127.0.0.1:2375"},
			want: []string{"DOCKER_HOST names an engine on the network (tcp://), and all jobs receive it: the code of any job that reaches the engine can be root on the engine's host; use the engine's socket (unix://)"},
		},
		{name: "an engine's socket", environ: []string{"DOCKER_HOST=unix:///run/docker.sock"}},
		{
			name: "plain http", content: "service_url: http://pulumi.example.com\n",
			want: []string{"service_url begins with http, so the token and the secrets of jobs cross the network in plain text: use https if the server has it"},
		},
		{
			name: "settings of another target",
			environ: []string{
				"PULUMI_AGENT_IMAGE=a", "PULUMI_AGENT_IMAGE_PULL_POLICY=Always", "PULUMI_AGENT_SERVICE_ACCOUNT_NAME=b",
				"PULUMI_AGENT_NUM_CPUS=1", "PULUMI_AGENT_MEM_QUANTITY=2", "PULUMI_AGENT_DEBUG_POD=true", "PULUMI_AGENT_POD_TEMPLATE={}",
			},
			content: "kubernetes_namespace: jobs\npod_start_timeout: 1m\n",
			want: []string{
				"FILE:1: kubernetes_namespace has no effect, because deploy_target is docker",
				"FILE:2: pod_start_timeout has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_IMAGE: image has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_IMAGE_PULL_POLICY: image_pull_policy has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_SERVICE_ACCOUNT_NAME: service_account_name has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_NUM_CPUS: num_cpus has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_MEM_QUANTITY: mem_quantity has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_DEBUG_POD: debug_pod has no effect, because deploy_target is docker",
				"env PULUMI_AGENT_POD_TEMPLATE: pod_template has no effect, because deploy_target is docker",
			},
		},
		{
			name: "Kubernetes", content: "deploy_target: kubernetes\npod_template_file: /etc/pod.yaml\ndebug_pod_ttl: 1h\n",
			environ: []string{"PULUMI_AGENT_IMAGE=a", "PULUMI_AGENT_NUM_CPUS=1"},
		},
		{
			name: "two templates", content: "deploy_target: kubernetes\npod_template_file: /etc/pod.yaml\n",
			environ: []string{"PULUMI_AGENT_IMAGE=a", "PULUMI_AGENT_POD_TEMPLATE={}"},
			want:    []string{"PULUMI_AGENT_POD_TEMPLATE is set, so pod_template_file is not used: remove one of the two"},
		},
		{name: "updates", content: "auto_update: true\nupdate_channel: beta\nupdate_url: https://updates.example.com\n"},
		{name: "plain http on this host", content: "service_url: http://127.0.0.1:8800\n"},
		{
			name: "single run", content: "single_run: true\nmax_concurrent_jobs: 3\n",
			want: []string{"max_concurrent_jobs has no effect, because single_run is true"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := load(tt.content, append(tt.environ, "PULUMI_AGENT_TOKEN="+testToken)...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
	if got := load("token: pul-d2d2….\n"); len(got) != 1 || !strings.Contains(got[0], "non-ASCII") || strings.Contains(got[0], "d2d2") {
		t.Errorf("the warnings for a shortened token are %q", got)
	}
}

func TestSearchHomebrew(t *testing.T) {
	prefix := t.TempDir()
	o := testOptions("", "PULUMI_AGENT_TOKEN="+testToken)
	o.Binary = filepath.Join(prefix, "Cellar/customer-managed-workflow-agent/1.2.3/libexec/customer-managed-workflow-agent")
	must(t, os.Mkdir(filepath.Join(prefix, "etc"), 0o755))
	for _, name := range []string{OldFileName, FileName} {
		path := filepath.Join(prefix, "etc", name)
		must(t, os.WriteFile(path, []byte("single_run: true\n"), 0o600))
		if found, err := Find(o); err != nil || found.Path != path {
			t.Errorf("found %+v, %v", found, err)
		}
	}
}

func TestSearch(t *testing.T) {
	root := t.TempDir()
	o := testOptions("", "PULUMI_AGENT_TOKEN="+testToken)
	o.Cwd, o.Home, o.Etc = filepath.Join(root, "cwd"), filepath.Join(root, "home"), filepath.Join(root, "etc")
	install := filepath.Join(root, "install")
	o.Binary = filepath.Join(install, "versions", "v1.2.3", "customer-managed-workflow-agent")
	var files []string
	for _, dir := range []string{o.Cwd, o.Home, o.Etc, install, filepath.Dir(o.Binary)} {
		must(t, os.MkdirAll(dir, 0o755))
		for _, name := range []string{FileName, OldFileName} {
			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, []byte("single_run: true\n"), 0o600))
			files = append(files, path)
		}
	}
	for len(files) > 0 {
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, shadowed := range files[1:] {
			want = append(want, shadowed+" is not used, because "+files[0]+" comes first")
		}
		if c.File() != files[0] || !slices.Equal(c.Warnings(), want) || !c.Agent.SingleRun {
			t.Errorf("read %s, want %s; warnings %q, want %q", c.File(), files[0], c.Warnings(), want)
		}
		must(t, os.Remove(files[0]))
		files = files[1:]
	}
	c, err := Load(o)
	if err != nil || c.File() != "" || c.Agent.SingleRun {
		t.Errorf("without any file: %v, %v", c, err)
	}
}

func TestSearchOddPlaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, OldFileName)
	must(t, os.WriteFile(path, []byte("token: "+testToken+"\n"), 0o600))
	o := testOptions("")
	o.Cwd, o.Home, o.Binary = dir, "", filepath.Join(dir, "agent")
	for _, home := range []string{"", "/dev/null", "/nonexistent"} {
		o.Home = home
		c, err := loadAndValidate(o)
		if err != nil || c.File() != path || len(c.Warnings()) > 0 {
			t.Errorf("home %q: %v, %v", home, c, err)
		}
	}
	must(t, os.Symlink(OldFileName, filepath.Join(dir, FileName)))
	c, err := loadAndValidate(o)
	if err != nil || c.File() != filepath.Join(dir, FileName) || len(c.Warnings()) > 0 {
		t.Errorf("with a link: %v, %v", c, err)
	}
}

func TestConfigFlag(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{FileName: "single_run: true\n", "mine.yaml": "syslog: true\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	for _, path := range []string{"mine.yaml", filepath.Join(dir, "mine.yaml"), "~/mine.yaml"} {
		o := testOptions(path)
		o.Cwd, o.Home = dir, dir
		c, err := Load(o)
		if err != nil || c.File() != filepath.Join(dir, "mine.yaml") || !c.Syslog || c.Agent.SingleRun || len(c.Warnings()) > 0 {
			t.Errorf("--config %s: %v, %v", path, c, err)
		}
	}
	_, err := Load(testOptions(filepath.Join(dir, "absent.yaml")))
	want := "the configuration file " + dir + "/absent.yaml given with --config does not exist: correct the path or create the file"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFileTrust(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mode     os.FileMode
		uid      func(owner int) int
		want     string
		warnings int
	}{
		{name: "private", mode: 0o600},
		{name: "readable by others", mode: 0o644, warnings: 1},
		{name: "readable by the group", mode: 0o640, warnings: 1},
		{name: "writable by the group", mode: 0o620, want: "PATH: can be written by other users (mode 0620), who could change the commands of this agent: run chmod go-w on it"},
		{name: "writable by others", mode: 0o602, want: "PATH: can be written by other users (mode 0602), who could change the commands of this agent: run chmod go-w on it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, FileName, "token: "+testToken+"\n")
			must(t, os.Chmod(path, tt.mode))
			c, err := Load(testOptions(path))
			if tt.want != "" {
				if err == nil || strings.ReplaceAll(err.Error(), path, "PATH") != tt.want {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				return
			}
			if err != nil || len(c.Warnings()) != tt.warnings {
				t.Errorf("got %v, %v", c, err)
			}
		})
	}

	t.Run("no token and readable by others", func(t *testing.T) {
		path := writeFile(t, FileName, "single_run: true\n")
		must(t, os.Chmod(path, 0o644))
		// A token from the environment is not in the file.
		c, err := Load(testOptions(path, "PULUMI_AGENT_TOKEN="+testToken))
		if err != nil || len(c.Warnings()) > 0 {
			t.Errorf("got %v, %v", c, err)
		}
	})

	t.Run("root's file, readable by the service's group", func(t *testing.T) {
		path := writeFile(t, FileName, "token: "+testToken+"\n")
		if err := os.Chown(path, -1, os.Getegid()+1); err != nil {
			t.Skip("only root can change the owner of files")
		}
		for mode, want := range map[os.FileMode]string{0o640: "", 0o644: "run chmod 640 on it"} {
			must(t, os.Chmod(path, mode))
			c, err := Load(testOptions(path))
			if err != nil || !strings.HasSuffix(strings.Join(c.Warnings(), "\n"), want) || want == "" && len(c.Warnings()) > 0 {
				t.Errorf("%04o: got %v, %v", mode, c.Warnings(), err)
			}
		}
	})

	t.Run("owned by another user", func(t *testing.T) {
		path := writeFile(t, FileName, "token: "+testToken+"\n")
		o := testOptions(path)
		if os.Geteuid() == 0 {
			must(t, os.Chown(path, 12345, -1))
		} else {
			o.UID++ // now the file belongs to another user
		}
		if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "belongs to user") || !strings.Contains(err.Error(), "chown") {
			t.Errorf("got %v", err)
		}
		o.UID = 12345
		if _, err := Load(o); os.Geteuid() == 0 && err != nil {
			t.Errorf("the owner's own file: %v", err)
		}
	})
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for path, want := range map[string]string{
		dir:         dir + ": is a directory: name the configuration file in it",
		fifo:        fifo + ": is not a regular file: name a configuration file",
		"/dev/zero": "/dev/zero: is not a regular file: name a configuration file",
	} {
		if _, err := Load(testOptions(path)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	// An unreadable file at a default path is also an error: skipping it would hide the mistake.
	o := testOptions("")
	o.Cwd = dir
	must(t, os.Mkdir(filepath.Join(dir, FileName), 0o755))
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("got %v", err)
	}
}

func TestProcessOptions(t *testing.T) {
	t.Setenv("PULUMI_AGENT_TOKEN", testToken)
	o := ProcessOptions("x.yaml")
	if o.Path != "x.yaml" || o.Cwd == "" || o.Etc != "/etc" || !filepath.IsAbs(o.Binary) || o.TempDir == "" || o.UID != os.Geteuid() {
		t.Errorf("got %+v", slices.Sorted(maps.Keys(conffile.Environment(o.Environ))))
	}
	if conffile.Environment(o.Environ)["PULUMI_AGENT_TOKEN"] != testToken {
		t.Error("the environment is not the process's")
	}
}
