package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// HoldingKind is a kind of what users own.
type HoldingKind string

// The kinds of what users own.
const (
	HeldStack       HoldingKind = "stack"       // whose owner the user is
	HeldSchedule    HoldingKind = "schedule"    // which acts on behalf of the user
	HeldWebhook     HoldingKind = "webhook"     // which acts on behalf of the user
	HeldIntegration HoldingKind = "integration" // which the user has created
	HeldEnvironment HoldingKind = "environment" // whose owner the user is
	HeldToken       HoldingKind = "token"       // of an organization, team or pool, which the user has created
)

// Holding is something that a user owns in an organization.
type Holding struct {
	Kind                HoldingKind
	ID                  string
	OrgID, Organization string
	Name                string
	StackID             string // of schedules, and of webhooks of stacks
}

// Holder is a user with the actors on whose behalf schedules and webhooks act for the user, in the format of package
// identity.
type Holder struct {
	UserID        string
	Actor, Member string
}

// held selects what a holder owns. Its arguments are those of [Holder.args].
const held = `SELECT 'stack' AS kind, s.id AS id, s.org_id AS org_id, s.project || '/' || s.name AS name, s.id AS stack_id
		FROM live_stacks s WHERE s.created_by = $1
	UNION ALL SELECT 'schedule', c.id, s.org_id, s.project || '/' || s.name, s.id
		FROM schedules c JOIN live_stacks s ON s.id = c.stack_id WHERE c.actor IN ($2, $3) AND c.fired = 0
	UNION ALL SELECT 'webhook', h.id, h.org_id, h.name,
		CASE WHEN h.id IN (SELECT w.hook_id FROM environment_webhooks w) THEN '' ELSE h.stack_id END FROM webhooks h WHERE h.actor IN ($2, $3)
	UNION ALL SELECT 'integration', i.id, i.org_id, i.provider || '/' || i.name, '' FROM vcs_integrations i WHERE i.created_by = $1
	UNION ALL SELECT 'environment', e.id, e.org_id, e.project || '/' || e.name, '' FROM environments e
		JOIN organizations o ON o.id = e.org_id AND o.deleted_at = 0 WHERE e.created_by = $1
	UNION ALL SELECT 'token', t.id, t.org_id, CASE WHEN t.name <> '' THEN t.name ELSE t.description END, ''
		FROM tokens t WHERE t.created_by = $1 AND t.kind IN ('org', 'team', 'pool') AND t.issuer_id = ''`

func (h Holder) args() []any { return []any{h.UserID, h.Actor, h.Member} }

// Holdings returns up to limit of what a user owns, by organization, kind and name.
func (tx *Tx) Holdings(h Holder, limit int) ([]Holding, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (v Holding, err error) {
		err = scan(&v.Kind, &v.ID, &v.OrgID, &v.Organization, &v.Name, &v.StackID)
		return v, err
	}, fmt.Sprintf("SELECT held.kind, held.id, held.org_id, o.name, held.name, held.stack_id FROM ("+held+`) held
		JOIN organizations o ON o.id = held.org_id ORDER BY o.name, held.kind, held.name, held.id LIMIT %d`, limit), h.args()...)
}

// CountHoldings returns how much of each kind a user owns.
func (tx *Tx) CountHoldings(h Holder) (map[HoldingKind]int64, error) {
	return database.Pairs[HoldingKind, int64](tx.Tx, "SELECT kind, COUNT(*) FROM ("+held+") held GROUP BY kind", h.args()...)
}

// OrganizationsOfHoldings returns the number of things that a user owns in each organization, by its id.
func (tx *Tx) OrganizationsOfHoldings(h Holder) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, "SELECT org_id, COUNT(*) FROM ("+held+") held GROUP BY org_id", h.args()...)
}

// StacksOfSchedules returns the ids of the stacks with schedules that act on behalf of a user, except deleted stacks.
func (tx *Tx) StacksOfSchedules(h Holder) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT DISTINCT c.stack_id FROM schedules c JOIN live_stacks s ON s.id = c.stack_id WHERE c.actor IN ($1, $2) AND c.fired = 0", h.Actor, h.Member)
}

// foreign is a subquery for the ids of the deleted stacks of organizations to which the user $1 does not belong.
const foreign = "(SELECT stack_id FROM deleted_stacks WHERE org_id NOT IN (SELECT org_id FROM members WHERE user_id = $1))"

// HandOver makes another user the owner of all that a user owns. The other user must belong to the organizations of
// [Tx.OrganizationsOfHoldings]. Of a deleted stack in another organization, no user is the owner afterwards, and its
// schedules stay.
func (tx *Tx) HandOver(from, to Holder) error {
	for _, query := range []string{
		"UPDATE stacks SET created_by = '' WHERE created_by = $2 AND id IN " + foreign,
		"UPDATE stacks SET created_by = $1 WHERE created_by = $2",
		"UPDATE vcs_integrations SET created_by = $1 WHERE created_by = $2",
		"UPDATE environments SET created_by = $1 WHERE created_by = $2",
		"UPDATE tokens SET created_by = $1 WHERE created_by = $2 AND kind IN ('org', 'team', 'pool') AND issuer_id = ''",
	} {
		if _, err := tx.Exec(query, to.UserID, from.UserID); err != nil {
			return err
		}
	}
	for _, actor := range [][2]string{{from.Actor, to.Actor}, {from.Member, to.Member}} {
		if _, err := tx.Exec("UPDATE webhooks SET actor = $1 WHERE actor = $2", actor[1], actor[0]); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE schedules SET actor = $2 WHERE actor = $3 AND stack_id NOT IN "+foreign, to.UserID, actor[1], actor[0]); err != nil {
			return err
		}
	}
	return nil
}

// PauseSchedulesOf pauses the schedules that act on behalf of a user, and returns the number of those that were not
// paused before, by the ids of the organizations.
func (tx *Tx) PauseSchedulesOf(h Holder, at time.Time) (map[string]int64, error) {
	paused, err := database.Pairs[string, int64](tx.Tx, `SELECT s.org_id, COUNT(*) FROM schedules c JOIN live_stacks s ON s.id = c.stack_id
		WHERE c.actor IN ($1, $2) AND c.paused = 0 AND c.fired = 0 GROUP BY s.org_id`, h.Actor, h.Member)
	if err != nil || len(paused) == 0 {
		return nil, err
	}
	_, err = tx.Exec("UPDATE schedules SET paused = 1, modified_at = $3 WHERE actor IN ($1, $2) AND paused = 0 AND fired = 0", h.Actor, h.Member, at)
	return paused, err
}
