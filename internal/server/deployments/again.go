package deployments

import (
	"context"
	"encoding/json"
	"fmt"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// InitiatorConsole is the initiator of deployments that users start in the console.
const InitiatorConsole = "console"

// Again queues a deployment with the operation and settings of an earlier one of the same stack. The
// stack's settings do not change it.
func (s *Service) Again(ctx context.Context, p identity.Principal, st store.Stack, id string) (d store.Deployment, err error) {
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		earlier, err := find(tx, st, id)
		if err != nil {
			return err
		}
		var request map[string]json.RawMessage
		if err := json.Unmarshal([]byte(earlier.Configuration), &request); err != nil {
			return fmt.Errorf("parsing the configuration of deployment %s: %w", earlier.ID, err)
		}
		request["operation"] = fmt.Appendf(nil, "%q", earlier.Operation)
		request["inheritSettings"] = json.RawMessage("false")
		body, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("encoding a deployment's request: %w", err)
		}
		d, err = s.CreateIn(ctx, tx, p, st, body, InitiatorConsole)
		return err
	})
	return d, err
}
