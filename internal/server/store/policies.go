package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// PolicyPack is a policy pack of an organization. A pack without complete versions counts as missing.
type PolicyPack struct {
	ID, OrgID, Name string
	DisplayName     string // of the newest version
	Runtime         string // "" if no version has named one; it never changes
	LastNumber      int64  // of its versions, also of removed ones
	CreatedAt       time.Time
}

// PackStatus is the status of a version of a policy pack.
type PackStatus string

// The statuses of a version.
const (
	PackIncomplete PackStatus = "incomplete" // until the client has confirmed the upload
	PackComplete   PackStatus = "complete"
	PackRemoved    PackStatus = "removed" // only the number and the tag remain, so that nothing else ever has them
)

// PolicyLevel is a policy of a pack with its enforcement level.
type PolicyLevel struct {
	Name  string `json:"name"`
	Level string `json:"level"`
}

// PolicyPackVersion is a version of a policy pack.
type PolicyPackVersion struct {
	ID, PackID   string
	Number       int64
	Tag          string // "" if the pack has none
	Status       PackStatus
	DisplayName  string
	Runtime      string
	Details      string // JSON
	Policies     string // JSON, as the client published them
	Levels       []PolicyLevel
	Configurable bool   // false if the pack ignores its configuration and the levels in it
	Blob         string // key of the archive; "" before the upload and after the removal
	Size         int64
	SHA256       string `db:"sha256"` // of the archive, hexadecimal
	CreatedBy    string // name of the caller
	CreatedAt    time.Time
	CompletedAt  time.Time
}

var (
	policyPacks        = database.NewTable[PolicyPack]("policy_packs p")
	policyPackVersions = database.NewTable[PolicyPackVersion]("policy_pack_versions v")
)

// InsertPolicyPack adds a pack, or returns [ErrConflict] if its organization has one of this name.
func (tx *Tx) InsertPolicyPack(p PolicyPack) error { return policyPacks.Insert(tx.Tx, p) }

// SavePolicyPack writes a pack's display name, runtime and last number.
func (tx *Tx) SavePolicyPack(p PolicyPack) error {
	return policyPacks.Update(tx.Tx, p, "display_name", "runtime", "last_number")
}

// PolicyPack returns a pack by its id.
func (tx *Tx) PolicyPack(id string) (PolicyPack, error) {
	return policyPacks.One(tx.Tx, "WHERE p.id = $1", id)
}

// PolicyPackByName returns a pack of an organization.
func (tx *Tx) PolicyPackByName(orgID, name string) (PolicyPack, error) {
	return policyPacks.One(tx.Tx, "WHERE p.org_id = $1 AND p.name = $2", orgID, name)
}

// PolicyPacks returns the packs of an organization that have a complete version, by name.
func (tx *Tx) PolicyPacks(orgID string) ([]PolicyPack, error) {
	return policyPacks.All(tx.Tx, `WHERE p.org_id = $1
		AND EXISTS (SELECT 1 FROM policy_pack_versions v WHERE v.pack_id = p.id AND v.status = 'complete') ORDER BY p.name`, orgID)
}

// CountPolicyPacks returns the number of an organization's packs, also of those without versions.
func (tx *Tx) CountPolicyPacks(orgID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_packs WHERE org_id = $1", orgID)
}

// PackNumber is the number and the tag of a complete version.
type PackNumber struct {
	PackID string
	Number int64
	Tag    string
}

var packNumbers = database.NewTable[PackNumber]("policy_pack_versions v")

// PackNumbers returns the complete versions of the packs of an organization, the oldest first; only those of one pack if
// packID is not "".
func (tx *Tx) PackNumbers(orgID, packID string) ([]PackNumber, error) {
	return packNumbers.All(tx.Tx, `JOIN policy_packs p ON p.id = v.pack_id WHERE p.org_id = $1 AND v.status = 'complete' AND ($2 = '' OR v.pack_id = $2)
		ORDER BY v.pack_id, v.number`, orgID, packID)
}

// CountPackVersions returns the number of the versions of a pack that were not removed.
func (tx *Tx) CountPackVersions(packID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM policy_pack_versions WHERE pack_id = $1 AND status <> 'removed'", packID)
}

// InsertPackVersion adds a version, or returns [ErrConflict] if the pack has one with the number or the tag.
func (tx *Tx) InsertPackVersion(v PolicyPackVersion) error {
	return policyPackVersions.Insert(tx.Tx, v)
}

// SavePackVersion writes the fields of a version that change after it was added.
func (tx *Tx) SavePackVersion(v PolicyPackVersion) error {
	return policyPackVersions.Update(tx.Tx, v, "status", "details", "policies", "levels", "blob", "size", "sha256", "completed_at")
}

// PackVersion returns a version by its id.
func (tx *Tx) PackVersion(id string) (PolicyPackVersion, error) {
	return policyPackVersions.One(tx.Tx, "WHERE v.id = $1", id)
}

// PackVersionByTag returns the version of a pack with a tag, in any status.
func (tx *Tx) PackVersionByTag(packID, tag string) (PolicyPackVersion, error) {
	return policyPackVersions.One(tx.Tx, "WHERE v.pack_id = $1 AND v.tag = $2 AND v.tag <> ''", packID, tag)
}

// PackVersionByNumber returns the version of a pack with a number, in any status.
func (tx *Tx) PackVersionByNumber(packID string, number int64) (PolicyPackVersion, error) {
	return policyPackVersions.One(tx.Tx, "WHERE v.pack_id = $1 AND v.number = $2", packID, number)
}

// NewestPackVersion returns the complete version of a pack with the greatest number.
func (tx *Tx) NewestPackVersion(packID string) (PolicyPackVersion, error) {
	return policyPackVersions.One(tx.Tx, "WHERE v.pack_id = $1 AND v.status = 'complete' ORDER BY v.number DESC LIMIT 1", packID)
}

// PackLevels is the policies of a complete version.
type PackLevels struct {
	Number int64
	Levels []PolicyLevel
}

// PackArchive is the archive of a complete version.
type PackArchive struct {
	ID, PackID string
	Number     int64
	Tag, Blob  string
}

var (
	packLevels   = database.NewTable[PackLevels]("policy_pack_versions v")
	packArchives = database.NewTable[PackArchive]("policy_pack_versions v")
)

// PackLevels returns up to limit complete versions of a pack with lower numbers than before, the newest first.
func (tx *Tx) PackLevels(packID string, before int64, limit int) ([]PackLevels, error) {
	return packLevels.All(tx.Tx, fmt.Sprintf("WHERE v.pack_id = $1 AND v.status = 'complete' AND v.number < $2 ORDER BY v.number DESC LIMIT %d", limit), packID, before)
}

// PackArchives returns the complete versions of a pack, the oldest first.
func (tx *Tx) PackArchives(packID string) ([]PackArchive, error) {
	return packArchives.All(tx.Tx, "WHERE v.pack_id = $1 AND v.status = 'complete' ORDER BY v.number", packID)
}

// RemovePackVersion removes all of a version but its number and its tag.
func (tx *Tx) RemovePackVersion(id string) error {
	return tx.ExecOne("UPDATE policy_pack_versions SET status = 'removed', details = '', policies = '', levels = '', blob = '', size = 0 WHERE id = $1", id)
}

// DeletePackVersion removes the row of a version.
func (tx *Tx) DeletePackVersion(id string) error {
	return tx.ExecOne("DELETE FROM policy_pack_versions WHERE id = $1", id)
}

// OwnedPackVersion identifies a version and its organization.
type OwnedPackVersion struct {
	ID    string `read:"v.id"`
	OrgID string `read:"p.org_id"`
}

var ownedPackVersions = database.NewTable[OwnedPackVersion]("policy_pack_versions v JOIN policy_packs p ON p.id = v.pack_id")

// UnfinishedPackVersions returns up to 100 incomplete versions that were created before a time.
func (tx *Tx) UnfinishedPackVersions(before time.Time) ([]OwnedPackVersion, error) {
	return ownedPackVersions.All(tx.Tx, "WHERE v.status = 'incomplete' AND v.created_at < $1 ORDER BY v.created_at LIMIT 100", before)
}

// DeleteUnfinishedPackVersion removes a version if it is incomplete.
func (tx *Tx) DeleteUnfinishedPackVersion(id string) error {
	_, err := tx.Exec("DELETE FROM policy_pack_versions WHERE id = $1 AND status = 'incomplete'", id)
	return err
}

// PackBlobs returns, in bytewise order, the keys of archives that follow a key.
func (tx *Tx) PackBlobs(after string, limit int) ([]string, error) {
	key := tx.Bytewise("blob")
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT blob FROM policy_pack_versions WHERE blob <> '' AND %[1]s > $1 ORDER BY %[1]s LIMIT %[2]d", key, limit), after)
}

// NamedPackBlobs returns those of the given blob keys that versions name.
func (tx *Tx) NamedPackBlobs(keys []string) ([]string, error) {
	where, args := among("blob", keys, nil)
	return database.Scalars[string](tx.Tx, "SELECT blob FROM policy_pack_versions WHERE "+where, args...)
}
