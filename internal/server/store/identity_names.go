package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// named returns an expression for the id of the organization with a name, which can be a former one, in any case of its
// letters: an organization keeps one spelling of each.
func named(name string) string {
	return "COALESCE((SELECT id FROM organizations WHERE name = " + name + " AND id <> '" + deletedOrg + "'), (SELECT org_id FROM former_names WHERE LOWER(name) = LOWER(" + name + ")))"
}

// OrganizationByName returns an organization by its name, or by a former one.
func (tx *Tx) OrganizationByName(name string) (Organization, error) {
	return organizations.One(tx.Tx, "WHERE id <> '"+deletedOrg+"' AND deleted_at = 0 AND id = "+named("$1"), name)
}

// RenameOrganization changes an organization's name, or returns [ErrConflict] if another organization has it or
// has had it. The former name still finds the organization.
func (tx *Tx) RenameOrganization(o Organization, name string, at time.Time) error {
	if _, err := tx.Exec("DELETE FROM former_names WHERE LOWER(name) = LOWER($1) AND org_id = $2", name, o.ID); err != nil {
		return err
	}
	if err := tx.checkFormerName(name); err != nil {
		return err
	}
	display := o.DisplayName
	if display == o.Name {
		display = name
	}
	if err := organizations.Update(tx.Tx, Organization{ID: o.ID, Name: name, DisplayName: display}, "name", "display_name"); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE users SET default_org = $1 WHERE default_org = $2", name, o.Name); err != nil {
		return err
	}
	return tx.keepName(o, o.ID, at)
}

// keepName makes the name of an organization a former one of an owner. It replaces another spelling of it.
func (tx *Tx) keepName(o Organization, owner string, at time.Time) error {
	if _, err := tx.Exec("DELETE FROM former_names WHERE LOWER(name) = LOWER($1) AND org_id IN ($2, $3)", o.Name, o.ID, owner); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT INTO former_names (name, org_id, renamed_at) VALUES ($1, $2, $3)", o.Name, owner, at)
	return err
}

// FreeName makes the name of a deleted organization available again. It reports whether a deleted organization had it.
func (tx *Tx) FreeName(name string) (bool, error) {
	n, err := tx.Exec("DELETE FROM former_names WHERE LOWER(name) = LOWER($1) AND org_id = $2", name, deletedOrg)
	return n > 0, err
}

// HadName reports whether a deleted organization had a name, in any case of its letters.
func (tx *Tx) HadName(name string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM former_names WHERE LOWER(name) = LOWER($1) AND org_id = $2", name, deletedOrg)
	return n > 0, err
}

// CountFormerNames returns the number of an organization's former names.
func (tx *Tx) CountFormerNames(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM former_names WHERE org_id = $1", orgID)
}

// checkFormerName returns [ErrConflict] if an organization has had a name, in any case of its letters.
func (tx *Tx) checkFormerName(name string) error {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM former_names WHERE LOWER(name) = LOWER($1)", name)
	if err == nil && n > 0 {
		err = ErrConflict
	}
	return err
}

// FormerNames returns the former names of organizations, newest first, by the ids of the organizations.
func (tx *Tx) FormerNames() (map[string][]string, error) {
	type row struct{ org, name string }
	rows, err := database.Collect(tx.Tx, func(scan database.Scan) (r row, err error) {
		err = scan(&r.org, &r.name)
		return r, err
	}, "SELECT org_id, name FROM former_names ORDER BY renamed_at DESC, name")
	names := map[string][]string{}
	for _, r := range rows {
		names[r.org] = append(names[r.org], r.name)
	}
	return names, err
}
