package integrations

import (
	"testing"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

func TestCanAsk(t *testing.T) {
	for name, test := range map[string]struct {
		integration store.VCSIntegration
		want        bool
	}{
		"a forge":                          {store.VCSIntegration{Provider: vcs.ProviderGitHub, Options: "{}"}, true},
		"a git server without credentials": {store.VCSIntegration{Provider: vcs.ProviderCustom, Options: "{}"}, false},
		"a git server with credentials":    {store.VCSIntegration{Provider: vcs.ProviderCustom, Options: "{}", Credential: []byte{1}}, true},
		"a git server with polls":          {store.VCSIntegration{Provider: vcs.ProviderCustom, Options: `{"events":"poll"}`}, true},
		"a git server with webhooks":       {store.VCSIntegration{Provider: vcs.ProviderCustom, Options: `{"events":"webhook"}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CanAsk(test.integration); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
