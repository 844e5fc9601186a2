package integrations

import (
	"testing"

	"workflowagent/internal/workflow"
)

// TestBoundAddresses checks which addresses in the settings mean the bound repository, which was renamed
// since the settings were written.
func TestBoundAddresses(t *testing.T) {
	b := Bound{CloneURL: "https://dev.azure.com/acme/p/_git/new", NamedURL: "https://dev.azure.com/acme/p/_git/old"}
	for address, want := range map[string]bool{
		"": true, "https://dev.azure.com/acme/p/_git/new": true, "https://acme@dev.azure.com/acme/p/_git/old": true,
		"https://acme.visualstudio.com/DefaultCollection/p/_git/old": true, "git@ssh.dev.azure.com:v3/acme/p/new": true,
		"https://dev.azure.com/acme/p/_git/other": false, "https://other.visualstudio.com/p/_git/old": false, "nonsense": false,
	} {
		set := &workflow.Settings{SourceContext: &workflow.SourceContext{Git: &workflow.SourceContextGit{RepoURL: address}}}
		if got := b.From(set); got != want {
			t.Errorf("%q: %t", address, got)
		}
	}
}
