package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// scriptedPulumi runs the file run of a policy pack as `pulumi policy analyze` would run the pack.
const scriptedPulumi = `#!/bin/sh
case "$1 $2" in
"install "*) echo installed;;
"policy analyze") STATE=$4 PACK=$6 CONFIG=$8; export STATE PACK CONFIG; exec sh "$6/run";;
*) echo "error: unexpected $*" >&2; exit 2;;
esac
`

const (
	summaryLine   = `printf '%s\n' '{"summaryEvent":{"result":"succeeded"}}'` + "\n"
	violationLine = `printf '%%s\n' '{"policyEvent":{"resourceUrn":"urn:a","message":"<{%%reset%%}>%s<{%%reset%%}>\n","policyName":"no-bad-content","enforcementLevel":"mandatory","severity":"high"}}'` + "\n"
)

func packArchive(t *testing.T, script string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	z := gzip.NewWriter(&buffer)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"package/PulumiPolicy.yaml": "runtime: executable\n", "package/run": script} {
		must.OK(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_ = must.Get(w.Write([]byte(text)))(t)
	}
	must.OK(t, w.Close())
	must.OK(t, z.Close())
	return buffer.Bytes()
}

// evaluated is a policy evaluation that a runner process has run.
type evaluated struct {
	output string
	result protocol.Result
	report workflow.PolicyReport
	size   int      // of the report, in bytes
	calls  []string // to other routes than those of jobs, with their Authorization
}

type scripted struct{ name, script string }

// evaluate runs packs in a runner process. change may change the definition.
func evaluate(t *testing.T, packs []scripted, change func(*workflow.PolicyEvaluation)) evaluated {
	t.Helper()
	const state = `{"version":3,"deployment":{"resources":[]}}`
	var e evaluated
	archives := map[string][]byte{}
	jobs := fakes.NewServer(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/workflow/") {
			jobs.Config.Handler.ServeHTTP(w, r)
			return
		}
		e.calls = append(e.calls, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		switch {
		case strings.Contains(r.URL.Path, "/export/"):
			fmt.Fprint(w, state)
		case strings.HasSuffix(r.URL.Path, "/results"):
			body, err := io.ReadAll(r.Body)
			if e.size = len(body); err != nil || json.Unmarshal(body, &e.report) != nil {
				t.Errorf("report: %.100q, %v", body, err)
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = w.Write(archives[filepath.Base(r.URL.Path)])
		}
	}))
	defer server.Close()
	bin, home := t.TempDir(), t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(bin, "pulumi"), []byte(scriptedPulumi), 0o755))
	job := jobs.Add(func(j *fakes.ServerJob) { j.Token = "job-secret-0123456789" })
	evaluation := &workflow.PolicyEvaluation{
		ClaimID: "claim.1", Organization: "o", Project: "p", Stack: "s", Group: "audit", Version: 7, BackendURL: server.URL, AccessToken: "access-secret-0123456789",
	}
	for _, p := range packs {
		data := packArchive(t, p.script)
		archives[p.name] = data
		sum := sha256.Sum256(data)
		evaluation.Packs = append(evaluation.Packs, workflow.PolicyPack{
			Name: p.name, Version: 1, VersionTag: "1.0.0", Location: server.URL + "/packs/" + p.name, SHA256: hex.EncodeToString(sum[:]), Config: json.RawMessage(`{"a":{"enforcementLevel":"mandatory"}}`),
		})
	}
	if change != nil {
		change(evaluation)
	}
	dir := filepath.Join(t.TempDir(), "job")
	input := must.Get(json.Marshal(protocol.Launch{
		ServiceURL: server.URL, JobID: job.ID, JobToken: job.Token, Epoch: 1, EchoLog: true, ForwardedEnv: map[string]string{"AWS_SECRET_ACCESS_KEY": "forwarded-secret-0123456789"},
		Definition: &workflow.JobDefinition{Image: &workflow.Image{}, Env: map[string]string{}, Steps: workflow.PolicySteps(), PolicyEvaluation: evaluation},
	}))(t)
	cmd := command(t, "run", "--job-dir", dir)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home, "PULUMI_ACCESS_TOKEN=host-secret-0123456789")
	cmd.Stdin = bytes.NewReader(input)
	out, _ := cmd.CombinedOutput()
	e.output = string(out)
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, protocol.FileResult)))(t), &e.result))
	if left := must.Get(filepath.Glob(filepath.Join(dir, "p*-*")))(t); len(left) > 0 {
		t.Errorf("the job left %q", left)
	}
	return e
}

// TestPolicyEvaluation tests that violations do not fail a job, and that a pack which cannot be run fails it without
// keeping the others from being reported.
func TestPolicyEvaluation(t *testing.T) {
	packs := []scripted{
		{"clean", `grep -q '"version":3' "$STATE" && grep -q enforcementLevel "$CONFIG" && ` + summaryLine},
		{"strict", fmt.Sprintf(violationLine, "bad <b>content</b>") + summaryLine + "exit 1\n"},
	}
	e := evaluate(t, packs, nil)
	r := e.report.Results
	if e.result.Status != workflow.StatusSucceeded || e.report.ClaimID != "claim.1" || !r.Succeeded || len(r.Violations) != 1 || len(r.Packs) != 2 {
		t.Fatalf("result %+v, report %+v\n%s", e.result, e.report, e.output)
	}
	want := workflow.PolicyViolation{
		PolicyName: "no-bad-content", PolicyPackName: "strict", PolicyPackVersion: "1.0.0", ResourceURN: "urn:a", EnforcementLevel: "mandatory", Kind: "audit",
		Message: "bad <b>content</b>", Severity: "high",
	}
	if r.Violations[0] != want {
		t.Errorf("violation %+v", r.Violations[0])
	}
	for _, call := range e.calls {
		token := strings.HasSuffix(call, " token access-secret-0123456789")
		if strings.Contains(call, " /packs/") == token {
			t.Errorf("call %q", call)
		}
	}
	if strings.Contains(e.output, "-secret-") {
		t.Errorf("a secret is in the output:\n%s", e.output)
	}

	e = evaluate(t, append(packs, scripted{"broken", "echo 'error: no host for the runtime' >&2; exit 1\n"}), nil)
	r = e.report.Results
	if e.result.Status != workflow.StatusFailed || r.Succeeded || len(r.Violations) != 1 || r.Packs[2].Error != "no host for the runtime" || r.Packs[1].Error != "" {
		t.Errorf("result %+v, report %+v\n%s", e.result, r, e.output)
	}

	e = evaluate(t, packs, func(v *workflow.PolicyEvaluation) { v.Packs[0].SHA256 = strings.Repeat("0", 64) })
	r = e.report.Results
	if e.result.Status != workflow.StatusFailed || !strings.Contains(r.Packs[0].Error, "sha256") || len(r.Violations) != 1 {
		t.Errorf("another archive: result %+v, report %+v\n%s", e.result, r, e.output)
	}
}

// TestHostilePacks tests what a pack can read and how much it can report and run.
func TestHostilePacks(t *testing.T) {
	spy := filepath.Join(t.TempDir(), "spy")
	pid := filepath.Join(t.TempDir(), "pid")
	lock := filepath.Join(t.TempDir(), "lock") // which all processes of the second pack hold
	e := evaluate(t, []scripted{
		{"first", `mkdir -p "$HOME/planted"; echo 'HTTPS_PROXY=http://evil.test' >> "$PULUMI_ENV" 2>/dev/null
			(setsid sh -c 'echo $$ >` + pid + `; exec sleep 300' </dev/null >/dev/null 2>&1 &); until [ -s ` + pid + ` ]; do :; done
			` + summaryLine},
		{"hop", `HOP='eval "$HOP" &' setsid sh -c 'exec 9>` + lock + `; flock 9; : >` + lock + `.held; eval "$HOP"; eval "$HOP"; eval "$HOP"' </dev/null >/dev/null 2>&1; until [ -e ` + lock + `.held ]; do :; done
			` + summaryLine},
		{"spy", `{ env; cat /proc/$PPID/environ /proc/$PPID/cmdline; ls -l /proc/self/fd; ls -a "$HOME" "$PACK/../.."; cat "$PACK"/../../*/*/run;
			kill -0 $(cat ` + pid + `) && echo al''ive; flock -n ` + lock + ` true || echo ho''ps; } > ` + spy + ` 2>&1; ` + summaryLine},
		{"flood", "yes $(printf %01000d 0) | head -c 40000000\n" + summaryLine},
		{"many", `i=0; while [ $i -lt 5100 ]; do ` + fmt.Sprintf(violationLine, "bad") + ` i=$((i+1)); done; ` + summaryLine},
	}, nil)
	r := e.report.Results
	for i, want := range []string{"", "", "", "longer than 32 MiB", ""} {
		if got := r.Packs[i].Error; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q", r.Packs[i].Name, got)
		}
	}
	if len(r.Violations) != 5000 || !r.Truncated {
		t.Errorf("%d violations, truncated %t", len(r.Violations), r.Truncated)
	}
	seen := string(must.Get(os.ReadFile(spy))(t))
	for _, bad := range []string{"-secret-", "planted", "alive", "hops", "echo $$", "deleted"} {
		if strings.Contains(seen, bad) {
			t.Errorf("a pack sees %q:\n%s", bad, seen)
		}
	}
	if strings.Contains(e.output, "-secret-") || len(e.output) > 4<<20 {
		t.Errorf("the output has %d bytes", len(e.output))
	}
	e = evaluate(t, []scripted{{"endless", "exec sleep 300\n"}}, func(v *workflow.PolicyEvaluation) { v.PackTimeout = workflow.Duration(500 * time.Millisecond) })
	if r := e.report.Results; !strings.Contains(r.Packs[0].Error, "did not end within") || e.result.Status != workflow.StatusFailed {
		t.Errorf("report %+v", r)
	}
}

// TestInterruptedEvaluation tests that a signal ends an evaluation with its packs, without a report.
func TestInterruptedEvaluation(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	e := evaluate(t, []scripted{{"endless", `kill -INT $(ps -o ppid= -p $PPID) ; echo $$ > ` + pid + "; exec sleep 300\n"}}, nil)
	if e.result.Status != workflow.StatusFailed || e.report.ClaimID != "" {
		t.Errorf("result %+v, report %+v\n%s", e.result, e.report, e.output)
	}
	if text, err := os.ReadFile(pid); err == nil {
		var n int
		_, _ = fmt.Sscan(string(text), &n)
		if n > 0 && syscall.Kill(n, 0) == nil {
			t.Errorf("the pack's process %d still runs", n)
		}
	}
}

// TestLongReports tests that a pack which reports too much takes nothing from the others, and that the report is small
// enough for a server.
func TestLongReports(t *testing.T) {
	const server = 8 << 20 // what it accepts
	violation := func(message string) string {
		return `'{"policyEvent":{"resourceUrn":"urn:a","message":"` + message + `","policyName":"p","enforcementLevel":"mandatory"}}'`
	}
	e := evaluate(t, []scripted{
		{"many", "yes " + violation("bad") + " | head -n 5100\n" + summaryLine},
		{"markup", "yes " + violation(strings.Repeat("<", 4096)) + " | head -n 1000\n" + summaryLine},
		{"small", "yes " + violation("bad") + " | head -n 10\n" + summaryLine},
		{"killed", "yes " + violation("bad") + " | head -n 10; echo 'error: broken' >&2; exit 1\n"},
	}, nil)
	r, found := e.report.Results, map[string]int{}
	for _, v := range r.Violations {
		found[v.PolicyPackName]++
	}
	if found["small"] != 10 || found["killed"] != 0 || found["many"] < 1000 || found["markup"] < 100 || len(r.Violations) > workflow.MaxPolicyViolations {
		t.Errorf("violations %v", found)
	}
	for i, want := range []bool{true, true, false, false} {
		if r.Packs[i].Truncated != want {
			t.Errorf("%s is truncated: %t", r.Packs[i].Name, r.Packs[i].Truncated)
		}
	}
	if e.size == 0 || e.size > server {
		t.Errorf("the report has %d bytes", e.size)
	}
}
