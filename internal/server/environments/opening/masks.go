package opening

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// keepMasks is the time for which the secrets that a job has opened are kept. Its log and events arrive later than the job
// ends, but not by days.
const keepMasks = 7 * 24 * time.Hour

// maskOf returns the secrets that the job of a deployment opens, or nil if there are none: those among values, and those that
// the evaluation used.
func (s *Service) maskOf(ctx context.Context, p identity.Principal, values wire.Values, used map[string]struct{}) (*store.EnvironmentMask, error) {
	if p.Kind != identity.KindJob || p.DeploymentID == "" {
		return nil, nil //nolint:nilnil // nil means that nothing must be masked
	}
	found := maps.Clone(used)
	for _, v := range values {
		secretsIn(v, false, found)
	}
	known, _, err := s.openedBy(ctx, p.DeploymentID) // which the runner masks already
	if err != nil {
		return nil, err
	}
	for _, text := range known {
		delete(found, text)
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	list := make([]string, 0, len(found))
	size := 0
	for secret := range found {
		list = append(list, secret)
		size += len(secret)
	}
	slices.Sort(list)
	text, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encoding the secrets of an environment: %w", err)
	}
	sum := hmac.New(sha256.New, s.maskKey)
	sum.Write([]byte(p.DeploymentID + "\n"))
	sum.Write(text)
	m := &store.EnvironmentMask{ID: hex.EncodeToString(sum.Sum(nil)), DeploymentID: p.DeploymentID, Size: int64(size)}
	m.Sealed, err = s.opts.Secrets.Encrypt(ctx, maskedFor(p.DeploymentID), text)
	return m, err
}

func maskedFor(deploymentID string) string { return "environment-masks/" + deploymentID }

// secretsIn adds the texts and numbers in a value that are secrets.
func secretsIn(v wire.Value, secret bool, found map[string]struct{}) {
	secret = secret || v.Secret
	switch content := v.Value.(type) {
	case []wire.Value:
		for _, element := range content {
			secretsIn(element, secret, found)
		}
	case map[string]wire.Value:
		for _, member := range content {
			secretsIn(member, secret, found)
		}
	case string:
		add(content, secret, found)
	case json.Number:
		add(content.String(), secret, found)
	}
}

func add(text string, secret bool, found map[string]struct{}) {
	if secret && len(text) >= redact.MinLength {
		found[text] = struct{}{}
	}
}

// addMask adds the secrets that the job of a deployment opens, unless they are too much to be masked.
func addMask(tx *store.Tx, m store.EnvironmentMask) error {
	list, err := tx.EnvironmentMasks(m.DeploymentID)
	if err != nil {
		return err
	}
	size := m.Size
	for _, o := range list {
		if o.ID == m.ID {
			return nil
		}
		size += o.Size
	}
	if size > redact.MaxJobBytes {
		return fault.Invalid("the secrets of the environments that this deployment opens have %d bytes in all, and at most %d can be masked in its log: "+
			"open smaller environments, or pass large files in another way", size, redact.MaxJobBytes)
	}
	m.CreatedAt = tx.Now()
	return tx.AddEnvironmentMask(m)
}

// OpenedSecrets returns the secrets of the environments that a job has opened to the job's runner, which masks them. known is
// the count that the runner has got last.
func (s *Service) OpenedSecrets(ctx context.Context, p identity.Principal, jobID string, known int64) (protocol.OpenedSecrets, error) {
	if p.JobID != jobID || p.DeploymentID == "" {
		return protocol.OpenedSecrets{}, fault.NotFound("this token belongs to another job than %q", jobID)
	}
	count, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountEnvironmentMasks(p.DeploymentID) })
	if err != nil || count == known {
		return protocol.OpenedSecrets{Count: count}, fault.While(err, "looking up what a job has opened")
	}
	texts, count, err := s.openedBy(ctx, p.DeploymentID)
	return protocol.OpenedSecrets{Count: count, Secrets: texts}, err
}

// KnownSecrets returns the secrets of the environments that the job of a deployment has opened.
func (s *Service) KnownSecrets(ctx context.Context, deploymentID string) ([]redact.Secret, error) {
	texts, _, err := s.openedBy(ctx, deploymentID)
	list := make([]redact.Secret, len(texts))
	for i, text := range texts {
		list[i] = redact.Secret{Name: "a secret of an environment", Value: text}
	}
	return list, err
}

// Openings returns the number of openings with secrets of the job of a deployment. It never shrinks while the job runs.
func (s *Service) Openings(ctx context.Context, deploymentID string) (int64, error) {
	return store.ReadOne(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountEnvironmentMasks(deploymentID) })
}

func (s *Service) openedBy(ctx context.Context, deploymentID string) (texts []string, count int64, err error) {
	rows, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) ([]store.EnvironmentMask, error) { return tx.EnvironmentMasks(deploymentID) })
	if err != nil {
		return nil, 0, fault.While(err, "looking up what a job has opened")
	}
	for _, row := range rows {
		text, err := s.opts.Secrets.Decrypt(ctx, maskedFor(deploymentID), row.Sealed)
		if err != nil {
			return nil, 0, fault.While(err, "reading what a job has opened")
		}
		var list []string
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, 0, fault.While(err, "reading what a job has opened")
		}
		texts = append(texts, list...)
	}
	return texts, int64(len(rows)), nil
}
