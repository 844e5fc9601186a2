package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// OIDCIssuer is an external identity token issuer that an organization trusts.
type OIDCIssuer struct {
	ID, OrgID, Name string
	URL             string        // URL as registered
	Issuer          string        // issuer claim of its tokens
	Thumbprints     []string      // SHA-256 of trusted TLS certificates
	MaxExpiration   time.Duration // 0 means the server's maximum
	JWKS            string        // static keys as JSON; "" if the server fetches the keys
	CreatedAt       time.Time
	ModifiedAt      time.Time
	LastUsedAt      time.Time // zero means never
	KeepsHost       bool      // whether its host may be in any network, because it is older than this rule
}

// OIDCPolicy defines which tokens the server grants in exchange for an issuer's tokens, in the
// format of package oidc.
type OIDCPolicy struct {
	ID, IssuerID string
	Version      int64
	Document     string
	CreatedAt    time.Time
	ModifiedAt   time.Time
}

var (
	oidcIssuers  = database.NewTable[OIDCIssuer]("oidc_issuers")
	oidcPolicies = database.NewTable[OIDCPolicy]("oidc_policies")
)

// InsertOIDCIssuer adds an issuer. It returns [ErrConflict] if the organization already trusts the
// issuer.
func (tx *Tx) InsertOIDCIssuer(i OIDCIssuer) error { return oidcIssuers.Insert(tx.Tx, i) }

// OIDCIssuer returns an organization's issuer by its id.
func (tx *Tx) OIDCIssuer(orgID, id string) (OIDCIssuer, error) {
	return oidcIssuers.One(tx.Tx, "WHERE id = $1 AND org_id = $2", id, orgID)
}

// OIDCIssuerOf returns an organization's issuer by the issuer claim of its tokens.
func (tx *Tx) OIDCIssuerOf(orgID, issuer string) (OIDCIssuer, error) {
	return oidcIssuers.One(tx.Tx, "WHERE org_id = $1 AND issuer = $2", orgID, issuer)
}

// OIDCIssuers returns the issuers of an organization, oldest first.
func (tx *Tx) OIDCIssuers(orgID string) ([]OIDCIssuer, error) {
	return oidcIssuers.All(tx.Tx, "WHERE org_id = $1 ORDER BY created_at, id", orgID)
}

// KeptOIDCIssuers returns the issuers of all organizations that may be in any network.
func (tx *Tx) KeptOIDCIssuers() ([]OIDCIssuer, error) {
	return oidcIssuers.All(tx.Tx, "WHERE keeps_host = 1 ORDER BY org_id, created_at, id")
}

// UpdateOIDCIssuer updates an issuer's name, thumbprints, expiration and static keys.
func (tx *Tx) UpdateOIDCIssuer(i OIDCIssuer) error {
	return oidcIssuers.Update(tx.Tx, i, "name", "thumbprints", "max_expiration", "jwks", "modified_at")
}

// TouchOIDCIssuer records when a token of an issuer was last exchanged. It returns [ErrNotFound] if
// the issuer does not exist.
func (tx *Tx) TouchOIDCIssuer(id string, at time.Time) error {
	return oidcIssuers.Update(tx.Tx, OIDCIssuer{ID: id, LastUsedAt: at}, "last_used_at")
}

// DeleteOIDCIssuer removes an issuer and its policy. The caller removes the tokens issued in
// exchange for the issuer's tokens.
func (tx *Tx) DeleteOIDCIssuer(orgID, id string) error {
	return tx.ExecOne("DELETE FROM oidc_issuers WHERE id = $1 AND org_id = $2", id, orgID)
}

// InsertOIDCPolicy adds the policy of an issuer.
func (tx *Tx) InsertOIDCPolicy(p OIDCPolicy) error { return oidcPolicies.Insert(tx.Tx, p) }

// OIDCPolicyOf returns the policy of an issuer.
func (tx *Tx) OIDCPolicyOf(issuerID string) (OIDCPolicy, error) {
	return oidcPolicies.One(tx.Tx, "WHERE issuer_id = $1", issuerID)
}

// OIDCPolicy returns an organization's policy by its id.
func (tx *Tx) OIDCPolicy(orgID, id string) (OIDCPolicy, error) {
	return oidcPolicies.One(tx.Tx, "WHERE id = $1 AND issuer_id IN (SELECT id FROM oidc_issuers WHERE org_id = $2)", id, orgID)
}

// UpdateOIDCPolicy updates the version and document of a policy.
func (tx *Tx) UpdateOIDCPolicy(p OIDCPolicy) error {
	return oidcPolicies.Update(tx.Tx, p, "version", "document", "modified_at")
}
