package storetest

import (
	"cmp"

	"workflowagent/internal/server/store"
)

// PolicyPack is a policy pack in a test. Its id is its name, and that of a version is the name followed by the tag.
type PolicyPack struct {
	Name, DisplayName, Runtime string
	// Tags are those of the versions, from number 1 on.
	Tags     []string
	Levels   []store.PolicyLevel
	Policies string // JSON
	Details  string // JSON
	By       string // name of the publisher
	Digest   string // of the archive
}

// Add adds the pack and its versions to an organization.
func (p PolicyPack) Add(tx *store.Tx, orgID string) error {
	err := tx.InsertPolicyPack(store.PolicyPack{ID: p.Name, OrgID: orgID, Name: p.Name, DisplayName: p.DisplayName, LastNumber: int64(len(p.Tags)), CreatedAt: tx.Now()})
	for i, tag := range p.Tags {
		if err != nil {
			return err
		}
		id := p.Name + tag
		err = tx.InsertPackVersion(store.PolicyPackVersion{
			ID: id, PackID: p.Name, Number: int64(i + 1), Tag: tag, Status: store.PackComplete, DisplayName: p.DisplayName, Runtime: p.Runtime, Configurable: true,
			Details: cmp.Or(p.Details, "{}"), Policies: cmp.Or(p.Policies, "[]"), Levels: p.Levels, Blob: "policy-packs/" + id, Size: 2048, SHA256: p.Digest, CreatedBy: p.By,
			CreatedAt: tx.Now(), CompletedAt: tx.Now(),
		})
	}
	return err
}

// Require adds a group that enables the version with a tag, with a configuration as JSON or "".
func (p PolicyPack) Require(tx *store.Tx, g store.PolicyGroup, tag, config string) error {
	if err := tx.InsertPolicyGroup(g); err != nil {
		return err
	}
	return tx.SaveEnabledPack(store.EnabledPack{GroupID: g.ID, PackID: p.Name, VersionID: p.Name + tag, Config: config})
}
