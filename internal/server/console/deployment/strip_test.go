package deployment

import (
	"slices"
	"testing"
	"time"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func TestSegmentsOfFailedJob(t *testing.T) {
	start := time.Now()
	job := store.Job{
		Status: workflow.StatusFailed, QueuedAt: start, ClaimedAt: start, EndedAt: start.Add(time.Second),
		Steps: []store.StepState{
			{Name: "source", Status: workflow.StepSucceeded, StartedAt: start, FinishedAt: start},
			{Name: "pre-run", Status: workflow.StepRunning, StartedAt: start},
			{Name: "pulumi", Status: workflow.StepNotStarted},
		},
	}
	var got []string
	for _, s := range segments(job, nil, start) {
		got = append(got, s.Name+" "+s.Status)
		if s.Began.IsZero() && s.Share != 0 {
			t.Errorf("%s has %d %% of the time", s.Name, s.Share)
		}
	}
	want := []string{"Wait in the queue succeeded", "Start the agent's job succeeded", "source succeeded", "pre-run failed", "pulumi skipped"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHeadline(t *testing.T) {
	for text, want := range map[string][2]string{
		"No agent of pool gpu is online.": {"No agent of pool gpu is online", ""},
		"Waiting for deployment #1 of the stack, which is running (update by ada, since 29 Nov 09:31 UTC).": {
			"Waiting for deployment #1 of the stack, which is running", "Update by ada, since 29 Nov 09:31 UTC.",
		},
		"All agents are busy (2 of 2). Deployments run here. See the pool.": {"All agents are busy", "2 of 2. Deployments run here. See the pool."},
		"": {"", ""},
	} {
		if first, rest := headline(text); first != want[0] || rest != want[1] {
			t.Errorf("%q: got %q, %q", text, first, rest)
		}
	}
}

// TestAddresses checks the addresses of commits at git hosts.
func TestAddresses(t *testing.T) {
	const from, to = "aaaaaaaa", "bbbbbbbb"
	custom := &store.VCSIntegration{Provider: "custom", Flavor: "gitea", BaseURL: "https://git.example.com/forge"}
	for _, c := range []struct {
		repository  string
		integration *store.VCSIntegration
		commit      string
		compare     string
	}{
		{"https://github.com/acme/web.git", nil, "https://github.com/acme/web/commit/aaaaaaaa", "https://github.com/acme/web/compare/aaaaaaaa...bbbbbbbb"},
		{"git@gitlab.com:acme/group/web.git", nil, "https://gitlab.com/acme/group/web/-/commit/aaaaaaaa", "https://gitlab.com/acme/group/web/-/compare/aaaaaaaa...bbbbbbbb"},
		{"https://user:secret@bitbucket.org/acme/web", nil, "https://bitbucket.org/acme/web/commits/aaaaaaaa", "https://bitbucket.org/acme/web/branches/compare/bbbbbbbb..aaaaaaaa"},
		{"https://git.example.com/acme/web", nil, "", ""},
		{"ssh://git@git.example.com/acme/web", custom, "https://git.example.com/forge/acme/web/commit/aaaaaaaa", "https://git.example.com/forge/acme/web/compare/aaaaaaaa...bbbbbbbb"},
		{"https://git.example.com/acme/web", &store.VCSIntegration{Provider: "custom", BaseURL: "javascript:alert(1)"}, "", ""},
	} {
		d := shown{Course: deployments.Course{Integration: c.integration}}
		d.Settings = &workflow.Settings{SourceContext: &workflow.SourceContext{Git: &workflow.SourceContextGit{RepoURL: c.repository}}}
		if got := d.commitURL(from); got != c.commit {
			t.Errorf("%s: the commit is at %q", c.repository, got)
		}
		if got := d.compareURL(from, to); got != c.compare {
			t.Errorf("%s: the comparison is at %q", c.repository, got)
		}
		if got := d.commitURL("../../x") + d.compareURL(from, from) + d.compareURL("", to); got != "" {
			t.Errorf("%s: no commit is at %q", c.repository, got)
		}
	}
}

// TestTally checks that the numbers of resources contain all that are deleted or replaced.
func TestTally(t *testing.T) {
	m := console.Model{Tree: changes.Tree{Totals: map[string]int{"create": 1, "import": 2, "update": 3, "replace": 4, "delete": 5, "read": 6, "same": 7}}}
	want := []count{{1, "create", false}, {2, "import", false}, {3, "update", false}, {4, "replace", true}, {5, "delete", true}, {7, "same", false}}
	if got := tally(m); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestFinished checks that the number of completed changes is shown only if the numbers of resources do not contain it.
func TestFinished(t *testing.T) {
	row := func(state changes.State) changes.Row {
		return changes.Row{Type: "pkg:index:Res", Op: "create", State: state}
	}
	stack := changes.Row{Type: stackType, Op: "create", State: changes.Done}
	for _, c := range []struct {
		preview, over bool
		rows          []changes.Row
		want          string
	}{
		{false, false, []changes.Row{stack, row(changes.Done), row(changes.Running)}, "1 done"},
		{false, true, []changes.Row{stack, row(changes.Done), row(changes.Failed)}, "1 done"},
		{false, true, []changes.Row{stack, row(changes.Done)}, ""},
		{true, true, []changes.Row{row(changes.Done)}, ""},
	} {
		if got := finished(console.Model{Preview: c.preview, Over: c.over, Tree: changes.Tree{Rows: c.rows}}); got != c.want {
			t.Errorf("preview %v, over %v, %d rows: %q, want %q", c.preview, c.over, len(c.rows), got, c.want)
		}
	}
}

// TestPreviewName checks that the head of a deployment does not say twice that it ran a preview.
func TestPreviewName(t *testing.T) {
	if got := previewName("preview") + ", " + previewName("destroy"); got != "preview, destroy (preview)" {
		t.Error(got)
	}
}
