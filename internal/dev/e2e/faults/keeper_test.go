package faults

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// keeper is a stack whose jobs keep a workspace. Each job runs step.sh of its commit.
type keeper struct {
	t     *testing.T
	stack *harness.Stack
	repo  *lab.Repo
	agent *lab.Agent
	state string // the agent's state directory
	// outside is a directory of the host in which jobs record what they did. Nothing else touches it.
	outside string
	hold    harness.Hold
	used    map[string]bool // paths of the stack's workspaces
}

const plantedSecret = "planted-9f1c2b7d"

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	ctx := t.Context()
	w := harness.StartSite(t, "")
	k := &keeper{t: t, outside: t.TempDir()}
	k.hold = harness.Hold{Dir: k.outside, At: k.outside}
	bin := t.TempDir()
	harness.Write(t, filepath.Join(bin, "git"), []byte(k.hold.Git(must.Get(exec.LookPath("git"))(t))), 0o755)
	stub := stubPulumi(t, "[ ! -e "+k.real()+" ] || exec "+filepath.Join(w.Tools.Dir, "pulumi")+` "$@"`)
	path := "PATH=" + strings.Join([]string{bin, stub, os.Getenv("PATH")}, string(os.PathListSeparator))
	k.agent = must.Get(w.StartAgent(ctx, "process", map[string]string{"max_concurrent_jobs": "2"}, path))(t)
	k.state = filepath.Join(w.Last.Dir, "state")
	k.repo = w.Repo(ctx, t)
	k.stack, k.used = k.newStack(w, "dev"), map[string]bool{}
	return k
}

// real is a file; only while it exists, jobs run pulumi instead of a stub that costs no time.
func (k *keeper) real() string { return filepath.Join(k.outside, "real") }

// newStack returns a stack whose jobs keep a workspace.
func (k *keeper) newStack(w *harness.Site, name string) *harness.Stack {
	k.t.Helper()
	t, ctx := k.t, k.t.Context()
	stack := w.NewStack(ctx, t, "box", name, "", nil)
	variables := map[string]any{"PLANTED": map[string]string{"secret": plantedSecret}, "OUTSIDE": k.outside}
	for name, value := range w.JobEnv() {
		variables[name] = value
	}
	must.OK(t, w.Server.Call(ctx, http.MethodPut, stack.Path("settings"), map[string]any{
		"sourceContext": map[string]any{"git": map[string]any{
			"repoUrl": k.repo.URL, "branch": "refs/heads/main",
			"gitAuth": map[string]any{"basicAuth": map[string]any{"userName": "git", "password": map[string]string{"secret": plantedSecret}}},
		}},
		"operationContext": map[string]any{"environmentVariables": variables, "preRunCommands": []string{"sh ./step.sh"}},
		"cacheOptions":     map[string]any{"enable": true},
	}, nil))
	return stack
}

// queue commits script as step.sh to a branch and queues a deployment of that branch.
func (k *keeper) queue(branch, script string) harness.Deployment {
	k.t.Helper()
	ctx := k.t.Context()
	for dir := range k.used {
		must.OK(k.t, harness.Unlocked(ctx, dir))
	}
	must.Get(k.repo.Commit(ctx, branch, "Step", map[string]string{"step.sh": "echo \"WORKSPACE $(cd .. && pwd)\"\n" + script}))(k.t)
	request := map[string]any{"operation": "update", "inheritSettings": true}
	if branch != lab.MainBranch {
		request["sourceContext"] = map[string]any{"git": map[string]any{"branch": "refs/heads/" + branch}}
	}
	var d harness.Deployment
	must.OK(k.t, k.stack.W.Server.Call(ctx, http.MethodPost, strings.TrimSuffix(k.stack.Path(""), "/"), request, &d))
	return d
}

// run is queue, and waits for the end. It returns the deployment's log.
func (k *keeper) run(branch, script, status string) string {
	k.t.Helper()
	return k.finish(k.queue(branch, script), status)
}

func (k *keeper) finish(d harness.Deployment, status string) string {
	k.t.Helper()
	ctx := k.t.Context()
	d = k.stack.Finish(ctx, k.t, d)
	log := k.stack.Log(ctx, k.t, d)
	if _, dir, ran := strings.Cut(log, "WORKSPACE "); ran {
		dir, _, _ = strings.Cut(dir, "\n")
		k.used[dir] = true
	}
	if d.Status != status {
		k.t.Fatalf("deployment %d %s (%s %s), not %s:\n%s", d.Version, d.Status, d.Reason, d.Message, status, log)
	}
	return log
}

// runner returns the runner of which a process is a descendant. The agent is the runner's parent.
func (k *keeper) runner(pid string) int {
	k.t.Helper()
	for {
		_, stat, _ := strings.Cut(string(harness.Read(k.t, "/proc/"+pid+"/stat")), ") ")
		fields := strings.Fields(stat)
		if len(fields) < 2 || fields[1] == "1" {
			k.t.Fatalf("process %s is not a descendant of the agent", pid)
		}
		if fields[1] == strconv.Itoa(k.agent.Process.Pid()) {
			return must.Get(strconv.Atoi(pid))(k.t)
		}
		pid = fields[1]
	}
}

// mark leaves files in every place of a workspace that a job can find, below a name.
func mark(name string) string {
	return fmt.Sprintf(`set -u
mkdir -p node_modules
for dir in . .git .git/hooks node_modules .. "${GOMODCACHE:-.}" "${GOCACHE:-.}" "${npm_config_cache:-.}" "${PIP_CACHE_DIR:-.}" "$HOME"; do
	mkdir -p "$dir" && echo x > "$dir/mark-%s"
done
`, name)
}

// look prints SEES and the name of each mark that a job finds.
const look = `for dir in . "${GOMODCACHE:-.}" "${GOCACHE:-.}" "${npm_config_cache:-.}" "${PIP_CACHE_DIR:-.}" "$HOME" ..; do
	find "$dir" -maxdepth 4 -name 'mark-*' 2>/dev/null | sed 's/^/SEES /'
done
echo LOOKED
`

// sees returns whether a job that ran [look] has found a mark.
func sees(log, name string) bool { return strings.Contains(log, "/mark-"+name+"\n") }

// noSecrets searches all workspaces for the secrets of the stack.
func (k *keeper) noSecrets(t *testing.T) {
	t.Helper()
	k.settled()
	files := 0
	err := filepath.WalkDir(filepath.Join(k.state, "workspaces"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(plantedSecret)) {
			t.Errorf("%s contains a secret", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files found: %v", files, err)
	}
}

// settled waits until no job uses a workspace of the agent, and returns the records of the whole ones. The
// agent takes a workspace to be in use until it has removed the job, a little after its end.
func (k *keeper) settled() (records []string) {
	k.t.Helper()
	limited, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	must.OK(k.t, harness.Until(limited, func() (bool, error) {
		used, err := process.UsedWorkspaces(filepath.Join(k.state, "processes"))
		return len(used) == 0, err
	}))
	for _, dir := range must.Get(filepath.Glob(filepath.Join(k.state, "workspaces", "*")))(k.t) {
		must.OK(k.t, harness.Unlocked(k.t.Context(), dir))
	}
	return must.Get(filepath.Glob(filepath.Join(k.state, "workspaces", "*", "state.json")))(k.t)
}
