package deployments

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Author is who has set a value, and when.
type Author struct {
	Name string // what the user is called, or the name of another actor at the time
	At   time.Time
}

// comparedSettings bounds the newest changes of a stack's settings among which [Service.SecretAuthors] searches.
const comparedSettings = 100

// SecretAuthors returns who has set the variables of a stack's settings that are secrets, by their names. Variables that
// were set before the newest changes, or before the audit log begins, are missing.
func (s *Service) SecretAuthors(ctx context.Context, st store.Stack) (map[string]Author, error) {
	const prefix, suffix = "operationContext.environmentVariables.", ".ciphertext"
	out := map[string]Author{}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		list, err := tx.SettingsChanges(st.OrgID, st.ID, comparedSettings)
		if err != nil {
			return err
		}
		names := map[string]string{}
		for _, e := range list {
			var detail struct{ Keys []string }
			if json.Unmarshal([]byte(e.Detail), &detail) != nil {
				continue // an entry of another form names no variables
			}
			for _, key := range detail.Keys {
				name, secret := strings.CutSuffix(strings.TrimPrefix(key, prefix), suffix)
				if _, known := out[name]; known || !secret || !strings.HasPrefix(key, prefix) {
					continue
				}
				who := e.ActorKind + " " + e.ActorID + " " + e.Actor // all tokens of an organization have one id
				if _, known := names[who]; !known {
					u, err := tx.User(e.ActorID)
					if store.IgnoreMissing(err) != nil {
						return err
					}
					names[who] = cmp.Or(u.Name, e.Actor)
				}
				out[name] = Author{names[who], e.At}
			}
		}
		return nil
	})
	return out, fault.While(err, "reading who has set the secrets of %s", st.Ref())
}
