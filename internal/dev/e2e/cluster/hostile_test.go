package cluster

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// attack is a command of a repository that looks for the job's secrets and the cluster's, forges the
// job's result, and tries to kill the runner. It then fails.
const attack = `
for f in environ mem maps auxv fd/0 root/etc/passwd; do
  if (exec 3<"/proc/1/$f") 2>/dev/null; then echo "OPENED $f"; fi
done
for f in /mnt/pulumi/launch /mnt/pulumi/secret /var/run/secrets /run/secrets; do
  ls -A "$f" 2>/dev/null | sed "s|^|FOUND $f/|"
done
grep -rls '"jobToken":"[[:alnum:]]' /mnt /run /tmp /dev/shm 2>/dev/null | sed 's/^/TOKEN in /'
env | grep -E 'WORKFLOW_POD|PULUMI_AGENT' | sed 's/=.*//; s/^/VARIABLE /'
caps=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
if [ $((0x$caps & 0x2000)) -ne 0 ]; then echo "CAPABLE of NET_RAW"; fi
forged='{"exitCode":0,"status":"succeeded","reported":true,"finishedAt":"2026-01-01T00:00:00Z","seal":"00"}'
echo "$forged" >/dev/termination-log && echo "$forged" >/mnt/pulumi/workflow/job/result.json
rm -f /dev/termination-log 2>/dev/null && echo "REMOVED termination-log"
kill -9 1 2>/dev/null
ln -s /etc /mnt/pulumi/workflow/job/spool/etc 2>/dev/null
echo forged >/mnt/pulumi/workflow/workflow-runner.new && mv /mnt/pulumi/workflow/workflow-runner.new /mnt/pulumi/workflow/workflow-runner
sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 &
echo "the attack ends"
exit 3
`

// TestClusterHostileRepository runs a repository's hostile command in a pod: it must find no secret,
// and the deployment must fail as the command did.
func TestClusterHostileRepository(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := harness.StartClusterSite(t)
	must.Get(w.StartClusterAgent(ctx, nil))(t)
	repo := w.Repo(ctx, t)
	w.NewStack(ctx, t, "box", "dev", w.Image, nil)
	limited, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	cli := exec.CommandContext(limited, filepath.Join(w.Tools.Dir, "pulumi"), "deployment", "run", "preview", repo.URL,
		"--stack", w.Server.Organization+"/box/dev", "--git-branch", "main", "--suppress-stream-logs=false",
		"--inherit-settings", "--pre-run-command", attack)
	cli.Env = w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)
	out, err := cli.CombinedOutput()
	log := string(out)
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		t.Errorf("pulumi deployment run: %v, want a failure, as that of the deployment", err)
	}
	if !strings.Contains(log, "\nthe attack ends\n") || !strings.Contains(log, "\nerror: Pre-run command 1 exited with code 3\n") {
		t.Error("the deployment did not fail as the attack did")
	}
	for _, bad := range []string{"OPENED ", "FOUND ", "TOKEN in ", "VARIABLE ", "CAPABLE ", "REMOVED "} {
		if strings.Contains(log, "\n"+bad) {
			t.Errorf("the output contains %q", bad)
		}
	}
	if t.Failed() {
		t.Logf("the output:\n%s", log)
	}
	left := []string{}
	err = harness.Until(limited, func() (done bool, err error) {
		left, err = w.Objects(limited)
		return len(left) == 0, err
	})
	if err != nil {
		t.Errorf("after the deployment, the namespace contains %v (%v)", left, err)
	}
}
