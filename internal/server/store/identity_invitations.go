package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// Invitation is a link that lets its holder join an organization once.
type Invitation struct {
	ID, OrgID            string
	Hash                 []byte // SHA-256 of the link's secret
	Role                 string
	Invitee              string // for whom it is, for display
	CreatedBy            string // user id; "" for a token of the organization, or the operator
	TokenID              string // of a token of the organization, or ""
	Inviter              string // who made it, for display
	CreatedAt, ExpiresAt time.Time
	Organization         string `db:"-" read:"o.name"`
}

var invitations = database.NewTable[Invitation]("invitations i JOIN organizations o ON o.id = i.org_id")

// InsertInvitation adds an invitation.
func (tx *Tx) InsertInvitation(i Invitation) error { return invitations.Insert(tx.Tx, i) }

// InvitationByHash returns an invitation by the hash of its secret, or [ErrNotFound].
func (tx *Tx) InvitationByHash(hash []byte) (Invitation, error) {
	return invitations.One(tx.Tx, "WHERE i.hash = $1", hash)
}

// Invitation returns an invitation of an organization by its id, or [ErrNotFound].
func (tx *Tx) Invitation(orgID, id string) (Invitation, error) {
	return invitations.One(tx.Tx, "WHERE i.org_id = $1 AND i.id = $2", orgID, id)
}

// Invitations returns up to limit invitations of an organization, newest first.
func (tx *Tx) Invitations(orgID string, limit int) ([]Invitation, error) {
	return invitations.All(tx.Tx, fmt.Sprintf("WHERE i.org_id = $1 ORDER BY i.created_at DESC, i.id LIMIT %d", limit), orgID)
}

// CountInvitations returns the number of the invitations of an organization.
func (tx *Tx) CountInvitations(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM invitations WHERE org_id = $1", orgID)
}

// DeleteInvitation removes an invitation, or returns [ErrNotFound].
func (tx *Tx) DeleteInvitation(id string) error {
	return tx.ExecOne("DELETE FROM invitations WHERE id = $1", id)
}

// DeleteOldInvitations removes up to limit invitations that expired before a time, and returns their number.
func (tx *Tx) DeleteOldInvitations(before time.Time, limit int) (int64, error) {
	return tx.Exec("DELETE FROM invitations WHERE id IN (SELECT id FROM invitations WHERE expires_at < $1 LIMIT $2"+tx.SkipLocked()+")", before.UnixMicro(), limit)
}
