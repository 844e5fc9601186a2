package cause_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/workflow"
)

// failed returns a job that failed in a step with an exit code.
func failed(step string, exit int) store.Job {
	return store.Job{
		ID: "job", Epoch: 1, Operation: workflow.OperationUpdate, Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode,
		AgentHostname: "agent-a",
		Steps: []store.StepState{
			{Name: "Setup", Status: workflow.StepSucceeded}, {Name: step, Status: workflow.StepFailed, ExitCode: &exit},
		},
	}
}

// ended returns a job that did not end by itself.
func ended(reason workflow.Reason, message string) store.Job {
	return store.Job{
		Status: workflow.StatusFailed, Reason: reason, Message: message, Operation: workflow.OperationUpdate, AgentHostname: "agent-a",
		LastSeenAt: time.Date(2026, 11, 29, 9, 31, 5, 0, time.UTC), Steps: []store.StepState{{Name: "Setup", Status: workflow.StepFailed}},
	}
}

// find returns the cause of a job that failed in its second step, with the log and the events of an update, as the server
// finds it.
func find(t *testing.T, job store.Job, log, events string) *store.Cause {
	t.Helper()
	logs := joblog.New(must.Get(blob.NewFiles(t.TempDir()))(t), true, 1<<30, time.Hour, logrus.NewEntry(logrus.New()))
	var framed []byte
	for text := range strings.Lines(log) {
		framed = protocol.AppendFrame(framed, time.Now(), false, []byte(strings.TrimSuffix(text, "\n")))
	}
	if len(framed) > 0 {
		must.Get(logs.Put(t.Context(), joblog.Key(job.ID, job.Epoch, 1), 0, framed))(t)
	}
	e := cause.Evidence{Repository: "acme/payments", Image: "pulumi/pulumi:9"}
	var fold changes.Reducer
	for event := range strings.Lines(events) {
		fold.Add([]byte(event))
	}
	e.Read(fold.Tree())
	e.Log = must.Get(logs.Ending(t.Context(), job, cause.Step(job), e.Subjects()))(t)
	return cause.Of(job, e)
}

// recorded returns a file of testdata, which real programs have written.
func recorded(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join("testdata", name)))(t))
}

func TestRecorded(t *testing.T) {
	const file = "urn:pulumi:resource::quick::lab:index:File::value"
	for _, c := range []struct {
		name, step  string
		log, events string
		want        store.Cause
	}{
		{"a resource", "pulumi update", "resource.log", "resource.jsonl", store.Cause{
			Kind: cause.Resource, Headline: "value could not be created", URN: file, Line: 17,
			Message: "creating the file's directory: mkdir /proc/nothing: no such file or directory",
		}},
		{"a missing grant", "pulumi update", "grant.log", "grant.jsonl", store.Cause{
			Kind: cause.Resource, Headline: "No grant lets this deployment read the outputs of organization/source/dev", Line: 19,
			URN: "urn:pulumi:dev::app::pulumi:pulumi:StackReference::source",
			Message: "[403] Forbidden: this deployment may not read the outputs of organization/source/dev: it does not exist, or no grant lets jobs of " +
				"organization/app/dev read it. An administrator of organization/source/dev can grant it at https://pulumi.example.com/organization/source/dev/settings/access " +
				"or with: workflow-server stack grant add organization/source/dev --to-stack organization/app/dev",
		}},
		{"a program", "pulumi update", "program.log", "program.jsonl", store.Cause{
			Kind: cause.Program, Headline: `The program failed: resource, variable, or config value "nowhere" not found`, Line: 14,
			Message: `resource, variable, or config value "nowhere" not found`,
		}},
		{"a command", "Pre-run command 2", "command.log", "", store.Cause{
			Kind: cause.Command, Line: 6,
			Headline: "Pre-run command 2 failed: npm error enoent Could not read package.json: Error: ENOENT: no such file or directory, open…",
			Message:  "npm error enoent Could not read package.json: Error: ENOENT: no such file or directory, open '/mnt/pulumi/job/work/package.json'",
		}},
		{"a command without a message", "Pre-run command 2", "exit.log", "", store.Cause{
			Kind: cause.Command, Headline: "Pre-run command 2 failed: exit code 3", Line: 3,
		}},
		{"dependencies", "Download dependencies", "dependencies.log", "", store.Cause{
			Kind: cause.Command, Line: 1,
			Headline: "The dependencies could not be downloaded: no Pulumi.yaml in the root directory of the repository: check the repository…",
			Message: "no Pulumi.yaml in the root directory of the repository: check the repository directory and branch in the deployment settings " +
				`(--folder and --branch of "pulumi deployment settings edit")`,
		}},
		{"a source", "Get source", "source.log", "", store.Cause{
			Kind: cause.Source, Line: 3,
			Headline: "acme/payments cannot be read: the repository does not exist, or the credentials give no access to it",
			Message:  "cloning https://git.example.com/acme/payments: the repository does not exist, or the credentials give no access to it",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := ""
			if c.events != "" {
				events = recorded(t, c.events)
			}
			c.want.Step = 1
			got := find(t, failed(c.step, 3), recorded(t, c.log), events)
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPrinted finds the causes in what other tools print.
func TestPrinted(t *testing.T) {
	program := recorded(t, "program.jsonl")
	const policies = "Policies:\n    ❌ storage@v1.1.0\n        - [advisory]  other  (lab:index:File: queue)\n          not this one\n" +
		"        - \x1b[31m[mandatory]\x1b[0m [severity: high]  no-bad-content  (lab:index:File: topic)\n          The file has the content bad: choose another.\n" +
		"        - [mandatory]  next  (lab:index:File: queue)\n          nor this one\n\n"
	for _, c := range []struct{ name, step, log, events, want string }{
		{
			"tsc", "pulumi update", "error: Running program '/job' failed with an unhandled exception:\nTSError: ⨯ Unable to compile TypeScript:\n" +
				"index.ts(14,7): error TS2345: Argument of type 'number' is not assignable.\n", program,
			"The program failed: index.ts(14,7): error TS2345: Argument of type 'number' is not assignable.",
		},
		{
			"Python", "pulumi update", "error: Program failed with an unhandled exception:\nTraceback (most recent call last):\n  File \"__main__.py\", line 3\nValueError: the zone is unknown\n", program,
			"The program failed: ValueError: the zone is unknown",
		},
		{"npm", "Pre-run command 2", "npm ERR! code 1\nnpm ERR! missing script: build\n", "", "Pre-run command 2 failed: npm ERR! missing script: build"},
		{"a lock", "pulumi update", "error: [409] Conflict: Another update is currently in progress.\n", "", "pulumi update failed: [409] Conflict: Another update is currently in progress."},
		{
			"an environment", "pulumi update", "<yaml>:1:13: this deployment may not open environment acme/app/prod: it does not exist, or …\nerror: opening environment: too many errors\n", "",
			"This deployment may not open environment acme/app/prod",
		},
		{
			"an environment in a command", "Pre-run command 2", "error: [403] Forbidden: this deployment may not open environment acme/app/prod: no grant can cover it\n", "",
			"This deployment may not open environment acme/app/prod",
		},
		{"no log", "pulumi update", "", "", "pulumi update failed: exit code 3"},
		{
			"a policy", "pulumi update", policies + "Diagnostics:\n  pulumi:pulumi:Stack (quickstart-dev):\n    error: update failed\n", "",
			"topic violates the policy no-bad-content: The file has the content bad: choose another.",
		},
		{"a policy and an error", "pulumi update", policies + "error: [409] Conflict: Another update is currently in progress.\n", "", "pulumi update failed: [409] Conflict: Another update is currently in progress."},
		{"a policy and a resource", "pulumi update", policies + recorded(t, "resource.log"), recorded(t, "resource.jsonl"), "value could not be created"},
		{"a policy in another step", "Pre-run command 2", policies, "", "Pre-run command 2 failed: exit code 3"},
		{"a bridge", "pulumi update", "Diagnostics:\n  lab:index:File (value):\n    error: 1 error occurred:\n    \t* creating S3 Bucket (logs): BucketAlreadyExists\n", recorded(t, "resource.jsonl"), "value could not be created"},
	} {
		if got := find(t, failed(c.step, 3), c.log, c.events); got == nil || got.Headline != c.want {
			t.Errorf("%s: got %+v, want %q", c.name, got, c.want)
		}
	}
}

// TestMasked checks that a cause contains no text of events that the log does not contain, because the runner masks more in
// the log than the server knows.
func TestMasked(t *testing.T) {
	const secret = "hunter2-hunter2"
	log, events := recorded(t, "resource.log"), recorded(t, "resource.jsonl")
	leaking := strings.ReplaceAll(events, "/proc/nothing", secret)
	got := find(t, failed("pulumi update", 255), strings.ReplaceAll(log, "/proc/nothing", "[secret]"), leaking)
	if got.Message != "creating the file's directory: mkdir [secret]: no such file or directory" || got.Kind != cause.Resource {
		t.Errorf("a message: %+v", got)
	}
	named := strings.ReplaceAll(events, "File::value", "File::"+secret)
	got = find(t, failed("pulumi update", 255), strings.ReplaceAll(log, "(value)", "([secret])"), named)
	if strings.Contains(got.Headline+got.Message+got.URN, secret) {
		t.Errorf("a name: %+v", got)
	}
	got = find(t, failed("pulumi update", 255), "", leaking)
	if strings.Contains(got.Headline+got.Message+got.URN, secret) {
		t.Errorf("without a log: %+v", got)
	}
}

func TestEnds(t *testing.T) {
	none := cause.Evidence{}
	image := cause.Evidence{Image: "pulumi/pulumi:9"}
	for _, c := range []struct {
		job        store.Job
		e          cause.Evidence
		kind, want string
	}{
		{ended(workflow.ReasonImage, "The image pulumi/pulumi:9 could not be pulled: not found"), image, cause.Start, "The image pulumi/pulumi:9 cannot be pulled: not found"},
		{ended(workflow.ReasonImage, "The image pulumi/pulumi:9 could not be inspected"), image, cause.Start, "The image pulumi/pulumi:9 could not be inspected"},
		{ended(workflow.ReasonImage, "ErrImagePull"), image, cause.Start, "The image pulumi/pulumi:9 cannot be used: ErrImagePull"},
		{ended(workflow.ReasonImage, ""), none, cause.Start, "The image cannot be used"},
		{ended(workflow.ReasonOOM, "The job was killed."), none, cause.Start, "Killed: the memory is used up"},
		{ended(workflow.ReasonLaunch, "The agent has no Docker Engine."), none, cause.Start, "The job could not be started: The agent has no Docker Engine"},
		{ended(workflow.ReasonTimeout, ""), none, cause.Start, "The deployment took too long"},
		{ended(workflow.ReasonLost, "silent"), none, cause.Agent, "agent-a was lost at 09:31 UTC; the update may still run"},
		{ended(workflow.ReasonAbandoned, "silent"), none, cause.Agent, "The agents stopped reporting before they started the job"},
		{ended(workflow.ReasonAgentStopped, ""), none, cause.Agent, "agent-a was stopped together with its jobs"},
		{ended("of-the-future", "it rains"), none, cause.Start, "of-the-future: it rains"},
	} {
		if got := cause.Of(c.job, c.e); got == nil || got.Kind != c.kind || got.Headline != c.want {
			t.Errorf("%s: got %+v, want %q", c.job.Reason, got, c.want)
		}
	}
	preview := ended(workflow.ReasonLost, "")
	preview.Operation = workflow.OperationPreview
	if got := cause.Of(preview, none); got.Headline != "agent-a was lost at 09:31 UTC" {
		t.Errorf("a preview may not still run: %q", got.Headline)
	}
	drift := ended(workflow.ReasonExitCode, "")
	drift.DriftFound = true
	for _, job := range []store.Job{drift, {Status: workflow.StatusSucceeded}, {Status: workflow.StatusRunning}, {Status: workflow.StatusSkipped}, ended(workflow.ReasonCancelled, "Cancelled by ada.")} {
		if got := cause.Of(job, none); got != nil {
			t.Errorf("%s %s has a cause: %+v", job.Status, job.Reason, got)
		}
	}
}

// TestHostile checks that texts of jobs remain one line of text.
func TestHostile(t *testing.T) {
	hostile := "<b>\x1b[31mx\u202egnp.exe\u2066\x00\x07\r" + strings.Repeat("é", 500)
	urn := "urn:pulumi:dev::box::pkg:index:Res::" + hostile
	job := failed("pulumi update", 1)
	resource := cause.Evidence{Failed: []cause.Failed{{URN: urn, Type: "pkg:index:Res", Name: hostile, Op: "delete"}}}
	resource.Log.About = joblog.ErrorLine{Hit: joblog.Hit{Stream: 1}, Text: "error: " + hostile}
	command := cause.Evidence{Log: joblog.Ending{Subject: -1, HasFirst: true, First: joblog.ErrorLine{Hit: joblog.Hit{Stream: 1}, Text: hostile}}}
	lost := ended(workflow.ReasonLost, hostile)
	lost.AgentHostname = hostile
	for name, got := range map[string]*store.Cause{
		"a resource": cause.Of(job, resource),
		"a command":  cause.Of(failed(hostile, 1), command),
		"an image":   cause.Of(ended(workflow.ReasonImage, hostile), cause.Evidence{Image: hostile}),
		"a source":   cause.Of(failed("Get source", 1), cause.Evidence{Repository: hostile, Log: command.Log}),
		"an agent":   cause.Of(lost, cause.Evidence{}),
		"a reason":   cause.Of(ended(workflow.Reason(hostile), hostile), cause.Evidence{}),
	} {
		for _, text := range []string{got.Headline, got.Message} {
			if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
				t.Errorf("%s: %q is not one printable line", name, text)
			}
		}
		if n := utf8.RuneCountInString(got.Headline); n == 0 || n > 120 {
			t.Errorf("%s: the headline has %d characters: %q", name, n, got.Headline)
		}
		if name == "a resource" && !strings.HasSuffix(got.Headline, "… could not be deleted") {
			t.Errorf("the predicate is cut: %q", got.Headline)
		}
	}
	if got := cause.Of(job, resource); !strings.HasPrefix(got.Headline, "<b>xgnp.exe") {
		t.Errorf("the name is not text: %q", got.Headline)
	}
}
