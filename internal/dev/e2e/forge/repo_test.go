package forge

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// patience bounds each wait.
const patience = time.Minute

// site is a server with an agent, and a forge.
type site struct {
	*harness.Site
	forge *lab.Gitea
	users map[string]string // tokens of the forge
}

func newSite(t *testing.T) *site {
	t.Helper()
	forge := forgetest.StartGitea(t)
	s := &site{forge: forge, users: forgetest.GiteaUsers(t, forge), Site: harness.StartSite(t, "", "--forge-poll", "1s")}
	must.Get(s.StartAgent(t.Context(), "process", map[string]string{"max_concurrent_jobs": "2"}))(t)
	return s
}

// call calls the server's API.
func (s *site) call(t *testing.T, method, path string, in, out any) {
	t.Helper()
	must.OK(t, s.Server.Call(t.Context(), method, path, in, out))
}

// until waits for a condition. state describes why it does not hold.
func until(t *testing.T, what string, check func() (ok bool, state any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var state any
	err := harness.Until(ctx, func() (ok bool, _ error) {
		ok, state = check()
		return ok, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v: %v", what, err, state)
	}
}

// repo is a repository of the forge with a program, and its integration.
type repo struct {
	forgetest.RealWorld
	s       *site
	t       *testing.T
	project string
	path    string // of the integration in the API
	hook    struct{ ID, WebhookURL, WebhookSecret string }
}

// program is the program of a project, with a number of resources.
func program(project string, resources int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nruntime: yaml\nconfig:\n  greeting: {type: string}\n  password: {type: string, secret: true}\nresources:\n", project)
	for i := range resources {
		fmt.Fprintf(&b, "  value%d: {type: 'lab:Random'}\n", i)
	}
	b.WriteString("outputs:\n  greeting: ${greeting}\n  password: ${password}\n  hex: ${value0.hex}\n")
	return b.String()
}

// newRepo creates a repository with a program for a project, and an integration that polls.
func (s *site) newRepo(t *testing.T, project string) *repo {
	t.Helper()
	r := &repo{RealWorld: forgetest.RealGitea(t, s.forge, s.users), s: s, t: t, project: project}
	r.Commit(t, "main", map[string]string{"infra/Pulumi.yaml": program(project, 1)})
	token := must.Get(s.forge.NewToken(t.Context(), forgetest.Deployer, "write:repository,write:issue"))(t)
	integration := map[string]any{
		"name": project, "flavor": "gitea", "baseUrl": s.forge.URL, "repositories": []map[string]string{{"name": r.Name()}},
		"credentials": map[string]string{"personalAccessToken": token},
		"events":      "poll",
	}
	all := "/api/console/orgs/" + s.Server.Organization + "/integrations/custom"
	s.call(t, http.MethodPost, all, integration, &r.hook)
	r.path = all + "/" + r.hook.ID
	return r
}

// change changes the integration.
func (r *repo) change(members map[string]any) {
	r.t.Helper()
	r.s.call(r.t, http.MethodPatch, r.path, members, nil)
}

// stack returns a stack of the project.
func (r *repo) stack(name string) *harness.Stack {
	return &harness.Stack{W: r.s.Site, Name: r.s.Server.Organization + "/" + r.project + "/" + name}
}

// watch creates a stack with configuration, commits its configuration, and makes the stack watch the
// repository. If the stack deploys commits, it returns after the server has recorded the present
// ones by a poll; else after the server has made a webhook, and only deliveries cause deployments.
func (r *repo) watch(name string, triggers map[string]any) *harness.Stack {
	r.t.Helper()
	st := r.stack(name)
	dir := r.t.TempDir()
	harness.Write(r.t, filepath.Join(dir, "Pulumi.yaml"), []byte(program(r.project, 1)), 0o600)
	r.pulumi(dir, "stack", "init", st.Name)
	r.pulumi(dir, "config", "set", "greeting", "hello from "+name)
	r.pulumi(dir, "config", "set", "--secret", "password", "hunter2-of-"+name)
	config := harness.Read(r.t, filepath.Join(dir, "Pulumi."+name+".yaml"))
	head := r.Commit(r.t, "main", map[string]string{"infra/Pulumi." + name + ".yaml": string(config)})
	vcs := map[string]any{"provider": "custom", "repository": r.Name()}
	maps.Copy(vcs, triggers)
	r.s.call(r.t, http.MethodPut, st.Path("settings"), map[string]any{
		"sourceContext":    map[string]any{"git": map[string]any{"branch": "main", "repoDir": "infra"}},
		"operationContext": map[string]any{"environmentVariables": r.s.JobEnv()},
		"vcs":              vcs,
	}, nil)
	if vcs["deployCommits"] == nil {
		r.change(map[string]any{"events": "webhook"})
		until(r.t, "the webhook that the server makes", func() (bool, any) { return r.Hooks(r.t, r.hook.WebhookURL) == 1, r.events() })
		return st
	}
	until(r.t, "the first poll", func() (bool, any) {
		list := r.events()
		for _, e := range list {
			if e.Reason == "head-recorded" && e.After == head {
				return true, nil
			}
		}
		return false, list
	})
	return st
}

// pulumi runs the CLI.
func (r *repo) pulumi(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(r.s.Tools.Dir, "pulumi"), args...)
	cmd.Dir, cmd.Env = dir, r.s.Tools.Env(r.s.Home, r.s.Server.URL, r.s.Server.Token)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("pulumi %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

type event struct {
	Source, Kind, Subject, After, Reason string
	Decisions                            []struct {
		Stack, Action, Reason, Commit string
		Version                       int
	}
}

// events returns the events of the integration.
func (r *repo) events() []event {
	r.t.Helper()
	var answer struct{ Events []event }
	r.s.call(r.t, http.MethodGet, r.path+"/events", nil, &answer)
	return answer.Events
}

// decided waits until an event about a commit has a decision for a stack with the reason.
func (r *repo) decided(stack, commit, reason string) {
	r.t.Helper()
	until(r.t, reason, func() (bool, any) {
		list := r.events()
		for _, e := range list {
			for _, d := range e.Decisions {
				if d.Stack == stack && d.Reason == reason && (d.Commit == commit || e.After == commit) {
					return true, nil
				}
			}
		}
		return false, list
	})
}

// deployed waits until the event of a kind about a commit has deployed a stack, and the deployment has
// succeeded. source is how the server must have noticed the event.
func (r *repo) deployed(st *harness.Stack, kind, commit, source string, want harness.Deployment) {
	r.t.Helper()
	name, version := st.Name[strings.LastIndex(st.Name, "/")+1:], 0
	until(r.t, kind+" of "+commit, func() (bool, any) {
		list := r.events()
		for _, e := range list {
			for _, d := range e.Decisions {
				if e.Kind == kind && d.Stack == name && d.Commit == commit && d.Version > 0 {
					version = d.Version
					if e.Source != source {
						r.t.Errorf("the %s of %s was noticed by %s, want %s", kind, commit, e.Source, source)
					}
					return true, nil
				}
			}
		}
		return false, list
	})
	r.succeeded(st, version, commit, want)
}

// succeeded waits until a deployment of a stack has succeeded, and checks what it deployed. It returns
// its log.
func (r *repo) succeeded(st *harness.Stack, version int, commit string, want harness.Deployment) string {
	r.t.Helper()
	d := st.Finish(r.t.Context(), r.t, r.find(st, version))
	log := st.Log(r.t.Context(), r.t, d)
	if d.Status != "succeeded" || d.Operation != want.Operation || d.Initiator != want.Initiator {
		r.t.Fatalf("deployment %d of %s is %+v, want %+v; its log:\n%s", version, st.Name, d, want, log)
	}
	if !strings.Contains(log, "Checked out commit "+commit) {
		r.t.Errorf("deployment %d of %s did not check out %s:\n%s", version, st.Name, commit, log)
	}
	if strings.Contains(log, "hunter2") {
		r.t.Errorf("the log of deployment %d of %s contains a secret:\n%s", version, st.Name, log)
	}
	return log
}

// find waits for a deployment of a stack.
func (r *repo) find(st *harness.Stack, version int) (d harness.Deployment) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("deployment %d of %s", version, st.Name), func() (bool, any) {
		err := r.s.Server.Call(r.t.Context(), http.MethodGet, st.Path(fmt.Sprintf("version/%d", version)), nil, &d)
		return err == nil, fmt.Sprintf("%v; events %+v", err, r.events())
	})
	return d
}

// reports waits until a commit has statuses.
func (r *repo) reports(commit string, want map[string]string) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("the statuses %v", want), func() (bool, any) {
		got := r.Reports(r.t, commit)
		return maps.Equal(got, want), got
	})
}

// comment waits until a pull request has exactly one comment, which contains parts. It logs and returns
// it.
func (r *repo) comment(pull int, parts ...string) string {
	r.t.Helper()
	var all []string
	until(r.t, fmt.Sprintf("a comment with %q", parts), func() (bool, any) {
		all = r.Comments(r.t, pull)
		if len(all) != 1 {
			return false, all
		}
		for _, part := range parts {
			if !strings.Contains(all[0], part) {
				return false, all[0]
			}
		}
		return true, nil
	})
	if strings.Contains(all[0], "hunter2") {
		r.t.Errorf("the comment contains a secret: %s", all[0])
	}
	r.t.Logf("comment on pull request %d:\n%s", pull, all[0])
	return all[0]
}
