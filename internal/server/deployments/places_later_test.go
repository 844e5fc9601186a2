package deployments_test

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestRequestsOfSchedulesKeepTheirAddress stores requests, and uses them after the settings have changed.
func TestRequestsOfSchedulesKeepTheirAddress(t *testing.T) {
	const auth, variable = `{"operation":"update","sourceContext":{"git":{%s"gitAuth":{"accessToken":{"secret":"the token"}}}}}`, `{"operation":"update","operationContext":{"environmentVariables":{"A":{"secret":"the variable"}}}}`
	inherited, own := strings.Replace(auth, "%s", "", 1), strings.Replace(auth, "%s", `"repoUrl":"https://git.example/own.git",`, 1)
	settings := func(repo string) string {
		return `{"sourceContext":{"git":{"repoUrl":"https://` + repo + `.git","branch":"main"}}}`
	}
	fire := func(p *plant, st store.Stack, request []byte) (string, error) {
		var d store.Deployment
		err := p.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) (err error) {
			d, err = p.service.CreateStored(t.Context(), tx, p.user, st, request, "schedule")
			return err
		})
		return d.ID, err
	}
	for name, tt := range map[string]struct {
		request, value string
		earlier, ok    bool // stored by an earlier server; valid for another address of the settings
	}{
		"the address of the settings":          {inherited, "the token", false, false},
		"an address of its own":                {own, "the token", false, true},
		"a variable":                           {variable, "the variable", false, true},
		"earlier, the address of the settings": {inherited, "", true, false},
		"earlier, an address of its own":       {own, "the token", true, true},
		"earlier, a variable":                  {variable, "the variable", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, st := newPlaces(t)
			p.must(p.put(st, settings("git.example/a")))
			var stored []byte
			var err error
			if tt.earlier {
				text, _ := p.bared(st, tt.request)
				stored = []byte(text)
			} else {
				stored, err = p.prepare(st, tt.request, nil)
				p.must(err)
			}
			if id, err := fire(p, st, stored); tt.value == "" {
				// No record says for which address an earlier server has got it.
				p.misplaced("the request", err, "sourceContext.git.gitAuth.accessToken")
			} else {
				p.must(err)
				p.opens(id, tt.value)
			}
			p.must(p.put(st, settings("evil.example/a")))
			id, err := fire(p, st, stored)
			if !tt.ok {
				p.misplaced("the request after the change", err, "sourceContext.git.gitAuth.accessToken")
				return
			}
			p.must(err)
			p.opens(id, tt.value)

			// What a client has read can be sent back, and the write encrypts it again.
			fresh, err := p.prepare(st, string(stored), stored)
			p.must(err)
			if same := bytes.Equal(fresh, stored); same == tt.earlier {
				t.Errorf("the ciphertext remained: %v", same)
			}
			id, err = fire(p, st, fresh)
			p.must(err)
			p.opens(id, tt.value)
			if tt.earlier {
				_, err := p.ask(st, string(bytes.Replace(stored, []byte(`"operation":"update",`), nil, 1)))
				if err == nil {
					t.Error("a client can use the earlier ciphertext in a request of its own")
				}
			}
		})
	}
}

// TestCopiesOfSecrets copies settings to another stack and another address, as for review stacks.
func TestCopiesOfSecrets(t *testing.T) {
	p, st := newPlaces(t)
	to := p.stack("copy")
	for _, earlier := range []bool{false, true} {
		if document, _ := p.bared(st, withSecrets); earlier {
			p.store(st, document)
		} else {
			p.must(p.put(st, withSecrets))
		}
		p.must(p.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return p.service.CopySettings(t.Context(), tx, st, to, "test", func(set *workflow.Settings) {
				set.SourceContext.Git.RepoURL = "https://git.example/renamed.git"
			})
		}))
		id, err := p.ask(to, `{}`)
		p.must(err)
		p.opens(id, "the password", "the registry", "the variable")
		doc, _ := p.settings(to)
		p.must(p.put(to, doc))
		p.misplaced("the address before", p.put(to, strings.Replace(doc, "renamed", "a", 1)), userPath)
	}
}

// TestSecretsOfWatchedRepositories gives credentials for a repository that the settings only name. The
// server knows its address from the integration.
func TestSecretsOfWatchedRepositories(t *testing.T) {
	for name, settings := range map[string]string{
		"a forge":   `{"vcs":{"provider":"github","repository":"o/r","deployCommits":true},"sourceContext":{"git":{"branch":"main","gitAuth":{"accessToken":{"secret":"the token"}}}}}`,
		"no source": `{"gitHub":{"repository":"o/r","deployCommits":true},"sourceContext":{"git":{"gitAuth":{"accessToken":{"secret":"the token"}}}},"operationContext":{"environmentVariables":{"A":{"secret":"the variable"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, st := newForgePlant(t, storetest.SQLite(t), &forge{}, settings)
			for _, earlier := range []bool{false, true} {
				if document, _ := p.bared(st, settings); earlier {
					p.store(st, document)
				}
				doc, _ := p.settings(st)
				id, err := p.ask(st, `{}`)
				p.must(err)
				p.opens(id, "the token")
				p.opens(p.createFor(st, preview(7)).ID, "the token")
				p.must(p.put(st, doc))
			}
		})
	}
}
