package store

import (
	"encoding/json"
	"fmt"
	"time"
)

// OIDCIssuer is an external issuer of identity tokens that an organization trusts.
type OIDCIssuer struct {
	ID, OrgID, Name string
	URL             string        // as registered
	Issuer          string        // as in the tokens
	Thumbprints     []string      // of TLS certificates
	MaxExpiration   time.Duration // 0 for none
	JWKS            string        // static keys as JSON; "" if they are fetched
	CreatedAt       time.Time
	ModifiedAt      time.Time
	LastUsedAt      time.Time // zero = never
}

// OIDCPolicy defines what an issuer's tokens may be exchanged for, in package oidc's format.
type OIDCPolicy struct {
	ID, IssuerID string
	Version      int64
	Document     string
	CreatedAt    time.Time
	ModifiedAt   time.Time
}

const issuerColumns = `id, org_id, name, url, issuer, thumbprints, max_expiration, jwks, created_at, modified_at, last_used_at`

func readIssuer(scan scanFunc) (OIDCIssuer, error) {
	var i OIDCIssuer
	var thumbprints string
	var expiration, created, modified, used int64
	err := scan(&i.ID, &i.OrgID, &i.Name, &i.URL, &i.Issuer, &thumbprints, &expiration, &i.JWKS, &created, &modified, &used)
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal([]byte(thumbprints), &i.Thumbprints); err != nil {
		return i, fmt.Errorf("reading the thumbprints of issuer %s: %w", i.ID, err)
	}
	i.MaxExpiration = time.Duration(expiration) * time.Microsecond
	i.CreatedAt, i.ModifiedAt, i.LastUsedAt = fromMicros(created), fromMicros(modified), fromMicros(used)
	return i, nil
}

// InsertOIDCIssuer adds an issuer, or returns [ErrConflict] if the organization already trusts it.
func (tx *Tx) InsertOIDCIssuer(i OIDCIssuer) error {
	thumbprints, err := json.Marshal(i.Thumbprints)
	if err != nil {
		return err
	}
	_, err = tx.exec("INSERT INTO oidc_issuers ("+issuerColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		i.ID, i.OrgID, i.Name, i.URL, i.Issuer, string(thumbprints), i.MaxExpiration.Microseconds(), i.JWKS,
		micros(i.CreatedAt), micros(i.ModifiedAt), micros(i.LastUsedAt))
	return err
}

// OIDCIssuer returns an issuer of an organization by its id.
func (tx *Tx) OIDCIssuer(orgID, id string) (OIDCIssuer, error) {
	return one(tx, readIssuer, "SELECT "+issuerColumns+" FROM oidc_issuers WHERE id = $1 AND org_id = $2", id, orgID)
}

// OIDCIssuerOf returns the issuer of an organization by the issuer claim of its tokens.
func (tx *Tx) OIDCIssuerOf(orgID, issuer string) (OIDCIssuer, error) {
	return one(tx, readIssuer, "SELECT "+issuerColumns+" FROM oidc_issuers WHERE org_id = $1 AND issuer = $2", orgID, issuer)
}

// OIDCIssuers returns the issuers of an organization, oldest first.
func (tx *Tx) OIDCIssuers(orgID string) ([]OIDCIssuer, error) {
	return collect(tx, readIssuer, "SELECT "+issuerColumns+" FROM oidc_issuers WHERE org_id = $1 ORDER BY created_at, id", orgID)
}

// UpdateOIDCIssuer updates an issuer's name, thumbprints, expiration and static keys.
func (tx *Tx) UpdateOIDCIssuer(i OIDCIssuer) error {
	thumbprints, err := json.Marshal(i.Thumbprints)
	if err != nil {
		return err
	}
	return tx.execOne(`UPDATE oidc_issuers SET name = $3, thumbprints = $4, max_expiration = $5, jwks = $6, modified_at = $7
		WHERE id = $1 AND org_id = $2`,
		i.ID, i.OrgID, i.Name, string(thumbprints), i.MaxExpiration.Microseconds(), i.JWKS, micros(i.ModifiedAt))
}

// TouchOIDCIssuer records when a token of an issuer was last exchanged, or returns [ErrNotFound].
func (tx *Tx) TouchOIDCIssuer(id string, at time.Time) error {
	return tx.execOne("UPDATE oidc_issuers SET last_used_at = $2 WHERE id = $1", id, micros(at))
}

// DeleteOIDCIssuer removes an issuer and its policy. The caller removes the tokens issued for it.
func (tx *Tx) DeleteOIDCIssuer(orgID, id string) error {
	return tx.execOne("DELETE FROM oidc_issuers WHERE id = $1 AND org_id = $2", id, orgID)
}

// DeleteTokensOfIssuer removes the tokens exchanged for an issuer's and returns their number.
func (tx *Tx) DeleteTokensOfIssuer(id string) (int64, error) {
	return tx.exec("DELETE FROM tokens WHERE issuer_id = $1 AND issuer_id <> ''", id)
}

const policyColumns = "p.id, p.issuer_id, p.version, p.document, p.created_at, p.modified_at"

func readPolicy(scan scanFunc) (OIDCPolicy, error) {
	var p OIDCPolicy
	var created, modified int64
	err := scan(&p.ID, &p.IssuerID, &p.Version, &p.Document, &created, &modified)
	p.CreatedAt, p.ModifiedAt = fromMicros(created), fromMicros(modified)
	return p, err
}

// InsertOIDCPolicy adds the policy of an issuer.
func (tx *Tx) InsertOIDCPolicy(p OIDCPolicy) error {
	_, err := tx.exec("INSERT INTO oidc_policies (id, issuer_id, version, document, created_at, modified_at) VALUES ($1, $2, $3, $4, $5, $6)",
		p.ID, p.IssuerID, p.Version, p.Document, micros(p.CreatedAt), micros(p.ModifiedAt))
	return err
}

// OIDCPolicyOf returns the policy of an issuer.
func (tx *Tx) OIDCPolicyOf(issuerID string) (OIDCPolicy, error) {
	return one(tx, readPolicy, "SELECT "+policyColumns+" FROM oidc_policies p WHERE p.issuer_id = $1", issuerID)
}

// OIDCPolicy returns a policy of an organization by id.
func (tx *Tx) OIDCPolicy(orgID, id string) (OIDCPolicy, error) {
	return one(tx, readPolicy, "SELECT "+policyColumns+` FROM oidc_policies p
		JOIN oidc_issuers i ON i.id = p.issuer_id WHERE p.id = $1 AND i.org_id = $2`, id, orgID)
}

// UpdateOIDCPolicy updates the version and document of a policy.
func (tx *Tx) UpdateOIDCPolicy(p OIDCPolicy) error {
	return tx.execOne("UPDATE oidc_policies SET version = $2, document = $3, modified_at = $4 WHERE id = $1",
		p.ID, p.Version, p.Document, micros(p.ModifiedAt))
}
