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
			Warn("the integration is older than the setting outbound_networks and may call its host in any network; a new integration for an internal host needs this setting")
	}
	return nil
}
