package integrations

import (
	"context"

	"workflowagent/internal/server/store"
)

// WarnOfKept logs the integrations whose forges may be in any network, because they are older than the
// server's rule for outgoing calls.
func (s *Service) WarnOfKept(ctx context.Context) error {
	kept, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.VCSIntegration, error) { return tx.KeptIntegrations() })
	if err != nil {
		return err
	}
	for _, i := range kept {
		s.log.WithFields(map[string]any{"integration": i.ID, "name": i.Name, "org_id": i.OrgID, "url": i.BaseURL, "api_url": i.APIURL}).
			Warn("an integration is older than the setting outbound_networks, so its host may be in any network: to end this, add the network to the setting if it is internal, and create the integration again")
	}
	return nil
}
