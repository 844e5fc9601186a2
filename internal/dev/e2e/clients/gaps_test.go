package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// TestClientsJournalsHaveGaps creates 300 resources with secrets at once. The CLI numbers a journal
// entry before it encrypts the entry's secrets, so a batch can lack entries that a later batch
// contains. Encryptions that wait for later batches ensure that some do.
func TestClientsJournalsHaveGaps(t *testing.T) {
	const resources = 300
	w := harness.StartSite(t, "")
	r := newRecorder(t, w.Server)
	r.eachBatch = true
	var encryptions atomic.Int32
	r.before = func(req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, "encrypt") || encryptions.Add(1)%20 != 0 {
			return
		}
		// The first batch can be of entries with lower numbers. At the end of the update, no batches follow.
		ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
		defer cancel()
		before := r.batches.Load()
		_ = child.Poll(ctx, 5*time.Millisecond, func() (bool, error) { return r.batches.Load() >= before+3, nil })
	}
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "Pulumi.yaml"), []byte(secretProgram(resources)), 0o600)
	pulumi := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), w.Tools.Pulumi(), append(args, "--non-interactive")...)
		cmd.Dir = dir
		cmd.Env = w.Tools.Env(w.Home, r.http.URL, w.Server.Token)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("pulumi %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
		}
		return out
	}
	pulumi("stack", "init", "dev")
	pulumi("up", "--yes", "--skip-preview", "--parallel", "30")
	r.finish()
	j := r.order[0]
	closed := closedGaps(t, j)
	t.Logf("%d of %d batches left a gap that a later one closed", closed, len(j.batches))
	if closed == 0 {
		t.Error("no batch left a gap, so the test shows nothing")
	}
	sameAsOfficial(t, j)
	secretsOf(t, pulumi("stack", "export", "--show-secrets"), resources)
}

func secretProgram(resources int) string {
	var text strings.Builder
	for i := range resources {
		fmt.Fprintf(&text, "  r%d: {type: lab:Random, properties: {trigger: {'fn::secret': secret %d}}}\n", i, i)
	}
	return yamlProgram(text.String())
}

// closedGaps returns the number of batches after which a sequence number was missing that a later
// batch contained. It checks that no number is missing in the end.
func closedGaps(t *testing.T, j *recording) int {
	t.Helper()
	seen := map[int]bool{}
	highest, closed := 0, 0
	for _, b := range j.batches {
		for _, raw := range j.entries[len(seen):b.entries] {
			var entry struct{ SequenceID int }
			must.OK(t, json.Unmarshal(raw, &entry))
			seen[entry.SequenceID] = true
			highest = max(highest, entry.SequenceID)
		}
		if len(seen) != b.entries {
			t.Fatalf("the first %d entries have %d sequence numbers", b.entries, len(seen))
		}
		if len(seen) < highest {
			closed++
		}
	}
	if len(seen) != highest {
		t.Errorf("the journal has %d entries with sequence numbers up to %d", len(seen), highest)
	}
	return closed
}

// sameAsOfficial compares the state after each batch with the CLI's own replay.
func sameAsOfficial(t *testing.T, j *recording) {
	t.Helper()
	var cases []harness.ReplayCase
	for _, b := range append(j.batches, batchEnd{len(j.entries), j.state}) {
		entries := must.Get(json.Marshal(j.entries[:b.entries]))(t)
		cases = append(cases, harness.ReplayCase{Base: j.base, Entries: entries, Got: b.state})
	}
	for i, result := range harness.ReplayOfficially(t, cases) {
		if diff := gocmp.Diff(harness.ComparableState(result.Want), harness.ComparableState(result.Got)); diff != "" || result.Error != "" {
			t.Fatalf("after %d of %d batches: the CLI's error is %q, its state differs (-want +got):\n%s", i+1, len(j.batches), result.Error, diff)
		}
	}
}

// secretsOf checks that a decrypted state contains the resources of [secretProgram].
func secretsOf(t *testing.T, state []byte, resources int) {
	t.Helper()
	type properties struct {
		Trigger struct{ Plaintext string }
	}
	var doc struct {
		Deployment struct {
			Resources []struct {
				URN, Type       string
				Inputs, Outputs properties
			}
		}
	}
	must.OK(t, json.Unmarshal(state, &doc))
	want, got := map[string][2]string{}, map[string][2]string{}
	for i := range resources {
		secret := fmt.Sprintf(`"secret %d"`, i)
		want[fmt.Sprintf("r%d", i)] = [2]string{secret, secret}
	}
	for _, r := range doc.Deployment.Resources {
		if r.Type == "lab:index:Random" {
			got[r.URN[strings.LastIndex(r.URN, ":")+1:]] = [2]string{r.Inputs.Trigger.Plaintext, r.Outputs.Trigger.Plaintext}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("secrets in inputs and outputs (-want +got):\n%s", diff)
	}
}
