package integrations

import (
	"testing"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// TestOlderIntegrationsKeepTheirHost changes the address of an integration that is older than the rule
// for outgoing calls.
func TestOlderIntegrationsKeepTheirHost(t *testing.T) {
	s := &Service{opts: Options{Forges: vcs.Forges{}}}
	for _, older := range []bool{false, true} {
		i := store.VCSIntegration{Provider: vcs.ProviderGitLab, BaseURL: "https://10.1.2.3", Options: "{}", KeepsHost: older}
		c, err := s.connection(t.Context(), i)
		if err != nil || c.Reach.Anywhere != older {
			t.Errorf("older: %t: got %+v, %v", older, c.Reach, err)
		}
		address := "https://10.1.2.4"
		_, _ = s.apply(t.Context(), &i, Change{BaseURL: &address}) // no forge is registered
		if i.KeepsHost {
			t.Error("the integration keeps another host")
		}
	}
}
