package issuer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// customClaim begins the names of the claims that only tokens of [Service.CustomURL] have.
const customClaim = "https://pulumi.com/"

// MaxCustomAudience is the maximum length of an audience of the users' choice, in bytes.
const MaxCustomAudience = 512

// Claims describe a token of an environment. The caller must have decided that the environment may have it.
type Claims struct {
	Subject, Audience string
	Lifetime          time.Duration
	// Custom is true for a token of [Service.CustomURL], whose audience a user chooses. Others have [customClaim] before their
	// names then.
	Custom bool
	// Others are the claims besides those that every token has.
	Others map[string]any
}

// Issue signs a token of an environment.
func (s *Service) Issue(ctx context.Context, c Claims) (Token, error) {
	var key store.SigningKey
	var now time.Time
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if c.Custom {
			if err := s.checkCustom(tx, c.Audience); err != nil {
				return err
			}
		}
		now = tx.Now()
		key, err = s.key(tx)
		return err
	})
	if err != nil {
		return Token{}, err
	}
	t := Token{ID: identity.NewID(), Audience: c.Audience, ExpiresAt: now.Add(c.Lifetime).Truncate(time.Second)}
	payload := map[string]any{}
	if c.Custom {
		for name, value := range c.Others {
			payload[customClaim+name] = value
		}
	} else {
		maps.Copy(payload, c.Others)
	}
	payload["iss"] = s.opts.URL
	if c.Custom {
		payload["iss"] = s.CustomURL()
	}
	payload["sub"], payload["aud"], payload["jti"] = c.Subject, c.Audience, t.ID
	payload["iat"], payload["nbf"], payload["exp"] = now.Unix(), now.Add(-early).Unix(), t.ExpiresAt.Unix()
	t.Text, err = s.sign(ctx, key, payload)
	return t, err
}

// checkCustom returns an error for an audience that belongs to other tokens. Both issuers have the same keys, and a service that
// checks only the key and the audience must not take a token for one of a job, or of another organization.
func (s *Service) checkCustom(tx *store.Tx, audience string) error {
	for _, prefix := range []string{"aws:", "azure:", "gcp:", "vault:"} {
		if strings.HasPrefix(strings.ToLower(audience), prefix) {
			return fault.Invalid("audiences that begin with %s belong to the tokens of login providers: use another one", prefix)
		}
	}
	if slices.Contains(s.opts.Audiences, audience) {
		return fault.Invalid("the audience belongs to the tokens of deployments: use another one")
	}
	_, err := tx.OrganizationByName(audience)
	if err == nil {
		return fault.Invalid("the audience is the name of an organization, which belongs to the tokens of its deployments: use another one")
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
