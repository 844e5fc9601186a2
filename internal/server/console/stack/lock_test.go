package stack_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

var lockCard = regexp.MustCompile(`(?s)<div class="note( n-warn)?" role="note"><svg[^>]*><use[^>]*></use></svg>\s*<div class="cut2"><p><strong>The stack is locked\.</strong>.*?</div>`)

// lock returns the text of the card about the stack's lock, or "", and whether it warns.
func (f *fixture) lock() (card string, warns bool) {
	f.t.Helper()
	found := lockCard.FindStringSubmatch(f.page(f.base).Body)
	if found == nil {
		return "", false
	}
	return text(found[0]), found[1] != ""
}

// begin starts an update and returns its id.
func (f *fixture) begin() (id string) {
	f.t.Helper()
	var made struct{ UpdateID string }
	const path = "/api/stacks/acme/web/prod/update"
	f.API(http.MethodPost, path, m{"name": "web", "runtime": "go", "metadata": m{"environment": m{"ci.system": "Jenkins", "ci.build.number": "17", "ci.build.url": "https://ci.example/17"}}}, &made)
	f.API(http.MethodPost, path+"/"+made.UpdateID, m{}, nil)
	return made.UpdateID
}

// letPass makes the lease of an update older, as if its client were silent for a time.
func (f *fixture) letPass(id string, silence time.Duration) {
	f.t.Helper()
	if err := f.DB().Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE updates SET started_at = started_at - $1, lease_expires_at = lease_expires_at - $1 WHERE id = $2", silence.Microseconds(), id)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

// TestLockCard checks what the page of a stack says about the update that holds it, while the client
// renews the lease, is silent, and after the lease has lapsed.
func TestLockCard(t *testing.T) {
	f := newFixture(t)
	if card, _ := f.lock(); card != "" {
		t.Errorf("a free stack has the card %q", card)
	}
	// The import is update 1. The server ends an update after its lease: another one is necessary if
	// that happens between two steps of the test.
	for number := 2; ; number++ {
		id := f.begin()
		card, warns := f.lock()
		for _, want := range []string{fmt.Sprintf("It is update #%d, started by admin at 20", number), "from Jenkins run 17; it renews its lease, which lapses at 20", "Open the update", "pulumi cancel --stack acme/web/prod"} {
			if !strings.Contains(card, want) || warns {
				t.Fatalf("while the client renews the lease, the card lacks %q, or warns: %t, %q", want, warns, card)
			}
		}
		f.letPass(id, 100*time.Second)
		if card, warns = f.lock(); !warns || !strings.Contains(card, "its client has been silent for 1 min 4") {
			t.Fatalf("with a silent client, the card is %q, warns: %t", card, warns)
		}
		f.letPass(id, 5*time.Minute)
		card, warns = f.lock()
		if card == "" && number < 4 {
			continue
		}
		if !warns || !strings.Contains(card, "its lease has lapsed, so the next update may start.") {
			t.Fatalf("after the lease, the card is %q, warns: %t", card, warns)
		}
		// The next update may start, and holds the stack.
		f.begin()
		if card, warns = f.lock(); warns || !strings.Contains(card, fmt.Sprintf("It is update #%d,", number+1)) {
			t.Fatalf("with the next update, the card is %q, warns: %t", card, warns)
		}
		return
	}
}
