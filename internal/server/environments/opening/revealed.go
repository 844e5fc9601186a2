package opening

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Secret is a value of an opened environment that is not shown yet.
type Secret struct {
	Path     string    `json:"path"`
	Text     string    `json:"text"`
	Revision int64     `json:"revision"`
	Until    time.Time `json:"until"`
}

// errUnsealed is the error for every text that is not a sealed secret of the reader.
var errUnsealed = fault.Invalid("this value can no longer be shown: open the environment again")

// heldBy is the scope of a secret in the key ring. The reader is the session of a browser.
func heldBy(e store.Environment, reader string) string {
	return "environment-secret/" + e.ID + "/" + reader
}

// Seal returns a text from which only [Service.Reveal] returns the secret, for the same environment and reader, until its time.
func (s *Service) Seal(ctx context.Context, e store.Environment, reader string, secret Secret) (string, error) {
	text, err := json.Marshal(secret)
	if err != nil {
		return "", fmt.Errorf("encoding a secret of an environment: %w", err)
	}
	sealed, err := s.opts.Secrets.Encrypt(ctx, heldBy(e, reader), text)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

// Reveal returns a sealed secret, and records that the caller reads it. The text is untrusted.
func (s *Service) Reveal(ctx context.Context, p identity.Principal, e store.Environment, reader, text string) (Secret, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Secret{}, errUnsealed
	}
	plain, err := s.opts.Secrets.Decrypt(ctx, heldBy(e, reader), sealed)
	if err != nil {
		if fault.KindOf(err) == fault.KindInvalid {
			err = errUnsealed
		}
		return Secret{}, err
	}
	var secret Secret
	if err := json.Unmarshal(plain, &secret); err != nil || time.Now().After(secret.Until) {
		return Secret{}, errUnsealed
	}
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return audit.RecordRead(ctx, tx, audit.Read{
			OrgID: e.OrgID, Action: audit.EnvironmentOpened, Subject: audit.Environment(e), DeploymentID: p.DeploymentID,
			Name: fmt.Sprintf("%s of revision %d", secret.Path, secret.Revision),
		})
	})
	if err != nil {
		return Secret{}, unrecorded(err)
	}
	return secret, nil
}
