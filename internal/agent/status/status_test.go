package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the expected text anew")

// sample returns the report of a busy agent, as in docs/operations.md.
func sample() Report {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	at := func(d time.Duration) *time.Time {
		t := now.Add(-d)
		return &t
	}
	r := Report{
		Problems: []string{}, Time: now, StartedAt: *at(26 * time.Hour), UptimeSeconds: 93600, LastActivity: *at(4 * time.Second), Healthy: true,
		Agent:   Agent{Version: "v1.0.0", Instance: "0", ID: "0f4bb1b1-7d9c-4b7e-8d4c-2f6a0b1c9e55", SessionID: "b5e2b7f0-6a55-4f8c-9f5a-6c8b2f0d1a11", Hostname: "build-7", PID: 812},
		Server:  Server{URL: "https://deployments.example.com", Connected: true, LastPoll: at(4 * time.Second), Since: at(26 * time.Hour)},
		Engine:  Engine{Target: "docker", Up: true, Since: at(26 * time.Hour)},
		Token:   Token{Kind: TokenStatic},
		Slots:   Slots{Total: 2, Busy: 1, Free: 1},
		Storage: Storage{Directory: "/var/lib/workflow-agent", FreeBytes: 13 << 30, PendingLogBytes: 1536},

		Workspaces: &Workspaces{Count: 3, Bytes: 812 << 20},

		Update: Update{Mode: UpdateInstalls, Available: "v1.1.0", CheckedAt: at(2 * time.Minute), State: "waits until no job is being started"},
		Config: []Setting{{"token", "[REDACTED]", "/etc/pulumi-workflow-agent.yaml:7"}, {"deploy_target", "docker", "default"}},
		Jobs: []Job{{
			JobID: "6c0c1f2e-1111-4222-8333-444455556666", DeploymentID: "9a1d7c3e-1111-4222-8333-444455556666", Pool: "pool", Stack: "acme/web/prod", Operation: "update",
			Epoch: 1, Phase: Running, PhaseSince: *at(3 * time.Minute), ClaimedAt: *at(200 * time.Second), StartedAt: at(3 * time.Minute), Log: LogBytes{412, 0},
		}},
		Ended: []Outcome{{
			JobID: "5b0c1f2e-1111-4222-8333-444455556666", DeploymentID: "8b2e7c3e-1111-4222-8333-444455556666", Pool: "pool", Stack: "acme/web/dev", Operation: "preview",
			Status: "failed", Reason: "image", Message: "The image acme/pulumi:9 is not in its registry.", ClaimedAt: *at(time.Hour), EndedAt: *at(time.Hour - 5*time.Second),
		}},
	}
	r.Judge()
	return r
}

func TestTextIsAsDocumented(t *testing.T) {
	var out bytes.Buffer
	if err := WriteText(&out, sample()); err != nil {
		t.Fatal(err)
	}
	want := golden(t, "status.txt", out.Bytes())
	doc, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, want) {
		t.Errorf("docs/operations.md does not show\n%s", want)
	}
}

// golden compares got with a file in testdata and returns the file's content. With -update, it
// writes got to the file first.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
	return want
}

func TestJSONKeepsItsForm(t *testing.T) {
	got, err := json.MarshalIndent(sample(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := golden(t, "status.json", append(got, '\n'))
	var back Report
	if err := json.Unmarshal(want, &back); err != nil || back.State != Ready || back.Jobs[0].Stack != "acme/web/prod" {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

// TestHostileText checks that the writers neutralize names and messages from untrusted servers and
// programs.
func TestHostileText(t *testing.T) {
	const hostile = "<img src=x onerror=alert(1)>\"'&\x1b[2J\x9b31m\u202e\r\nINJECTED\x00\x07"
	r := sample()
	r.Jobs[0].Stack, r.Jobs[0].DeploymentID, r.Jobs[0].Operation = hostile, hostile, hostile
	r.Ended[0].Message, r.Ended[0].Reason, r.Ended[0].Status = hostile, hostile, hostile
	r.Server.Error, r.Server.Connected, r.Server.URL = hostile, false, hostile
	r.Engine.Target, r.Engine.Error = hostile, hostile
	r.Problems = []string{hostile}
	r.Config = []Setting{{hostile, hostile, hostile}}
	r.Token = Token{Kind: TokenOIDC, Error: hostile}
	r.Agent.Hostname, r.Agent.Version, r.Storage.Directory = hostile, hostile, hostile
	r.Judge()
	r.State = hostile

	var text, page bytes.Buffer
	if err := WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	if err := WritePage(&page, r); err != nil {
		t.Fatal(err)
	}
	for name, out := range map[string]string{"text": text.String(), "page": page.String(), "job": DescribeJob(r.Jobs[0], r.Time) + "\n"} {
		for _, bad := range []string{"\x1b", "\x9b", "\u202e", "\x00", "\x07", "\r", "\nINJECTED"} {
			if strings.Contains(out, bad) {
				t.Errorf("the %s holds %q", name, bad)
			}
		}
	}
	if s := page.String(); strings.Contains(s, "<img") || strings.Contains(s, "alert(1)>") || strings.Contains(s, `x onerror=alert(1)>"`) {
		t.Errorf("the page is not escaped:\n%s", s)
	}
}

func TestPageIsSelfContained(t *testing.T) {
	var page bytes.Buffer
	if err := WritePage(&page, sample()); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "<link", "<img", " src=", "url(", "@import", "http://"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, want := range []string{`http-equiv="refresh"`, "acme/web/prod", "The image acme/pulumi:9 is not in its registry.", ">ready<"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{-1: "unknown", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB", 1 << 62: "4.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestTokensAndEnginesForPeople(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	past, future := now.Add(-time.Minute), now.Add(time.Hour)
	for want, got := range map[string]string{
		"OIDC, not exchanged yet": Token{Kind: TokenOIDC}.describe(now),
		"OIDC, none: no file":     Token{Kind: TokenOIDC, Error: "no file"}.describe(now),
		"OIDC, expired 1m00s ago": Token{Kind: TokenOIDC, ExpiresAt: &past}.describe(now),
		"OIDC, expires in 1h00m":  Token{Kind: TokenOIDC, ExpiresAt: &future}.describe(now),
		"docker, not checked yet": Engine{Target: "docker"}.describe(now),
		"docker, down for 1m00s":  Engine{Target: "docker", Since: &past}.describe(now),
		"U, not connected yet":    Server{URL: "U"}.describe(now),
		"U, not reachable for 1m00s, probing, last answer 1m00s ago": Server{URL: "U", BreakerOpen: true, Since: &past, LastPoll: &past}.describe(now),
		"U, not connected for 1m00s":                                 Server{URL: "U", Error: "401", Since: &past}.describe(now),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLine(t *testing.T) {
	r := Report{State: Ready, Slots: Slots{Total: 2, Busy: 1}}
	if got, want := r.Line(), "ready, 1 of 2 slots busy"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.State, r.Reasons = NotReady, []string{"No jobs can run here:\nno engine."}
	if got := r.Line(); !strings.HasPrefix(got, "not-ready, 1 of 2 slots busy: No jobs can run here:") || strings.Contains(got, "\n") {
		t.Errorf("got %q", got)
	}
}

// TestCauseFirst checks that the line for service managers names the cause of an unhealthy agent, and not only its effect.
func TestCauseFirst(t *testing.T) {
	r := sample()
	r.Healthy, r.Server.Connected, r.Server.Error = false, false, "this agent's token is unknown to the server"
	r.Judge()
	if line := r.Line(); !strings.HasPrefix(line, "unhealthy, 1 of 2 slots busy: ") || !strings.HasSuffix(line, "failed: this agent's token is unknown to the server") {
		t.Errorf("got %q", line)
	}
	r.Server.Connected, r.Server.Error = true, ""
	r.Judge()
	if line := r.Line(); !strings.Contains(line, "No progress since") {
		t.Errorf("without a known cause, got %q", line)
	}
}
