package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Limits of what describes a version.
const (
	maxPacks    = 1000 // of an organization, also removed ones
	maxVersions = 5000 // of a pack, without removed ones
	maxNumber   = 50_000
	maxPolicies = 1000
	maxName     = 200     // bytes of the name of a policy, and of names for display
	maxDetails  = 1 << 20 // bytes of the description of a pack, as JSON
	maxDescribe = 4 << 20 // bytes of the policies, as JSON
)

// Draft describes a version to publish.
type Draft struct {
	Name, DisplayName, Tag, Runtime string
	Policies                        []Policy
	Details                         Details
}

// Details is what a client says about a version besides its policies.
type Details struct {
	Description string            `json:"description,omitempty"`
	Readme      string            `json:"readme,omitempty"`
	Provider    string            `json:"provider,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Repository  string            `json:"repository,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// Published is a new version.
type Published struct {
	Version store.PolicyPackVersion
	Upload  string // address for the archive; it is a credential
	Warning string // for the client, or ""
}

// Publish adds a version to a pack, and the pack if it is new. The version is incomplete until [Service.Confirm]. A tag
// is used once: it names the same version forever, also after its removal, because clients keep packs by name and tag.
// Only an incomplete version can be published again.
func (s *Service) Publish(ctx context.Context, p identity.Principal, org store.Organization, n Draft) (Published, error) {
	v, err := versionOf(n)
	if err != nil {
		return Published{}, err
	}
	v.CreatedBy = p.Name()
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		if err := s.quota.AdmitWork(tx, org.ID, int64(len(v.Details)+len(v.Policies))); err != nil {
			return err
		}
		v.CreatedAt = tx.Now()
		pack, err := packFor(tx, org, v, n)
		if err != nil {
			return err
		}
		if err := freeTag(tx, pack, v.Tag); err != nil {
			return err
		}
		if err := freeNumber(tx, &pack, v.Tag); err != nil {
			return err
		}
		v.PackID, v.Number = pack.ID, pack.LastNumber
		if err := tx.InsertPackVersion(v); err != nil {
			return err
		}
		return recordVersion(ctx, tx, audit.PolicyPackCreated, pack, v, nil)
	})
	if err != nil {
		return Published{}, err
	}
	out := Published{Version: v}
	if !v.Configurable {
		out.Warning = fmt.Sprintf("Policy pack %s cannot be configured, so enforcement levels that policy groups set have no effect: each policy keeps the level of its code", n.Name)
	}
	out.Upload, err = s.addresses.make(ctx, s.db, upload, v.ID, addressLife)
	return out, err
}

// versionOf returns the row of a version, after checks.
func versionOf(n Draft) (store.PolicyPackVersion, error) {
	switch {
	case !workflow.IsName(n.Name) || n.Name == "." || n.Name == "..":
		return store.PolicyPackVersion{}, fault.Invalid("the name of a policy pack must consist of 1 to 100 letters, digits, '-', '_' and '.'")
	case n.Tag != "" && !workflow.IsName(n.Tag):
		return store.PolicyPackVersion{}, fault.Invalid("the version of a policy pack must consist of 1 to 100 letters, digits, '-', '_' and '.'")
	case len(n.Runtime) > 100 || termtext.OneLine(n.Runtime, 0) != n.Runtime:
		return store.PolicyPackVersion{}, fault.Invalid("the runtime of a policy pack must be a word of at most 100 bytes")
	case len(n.Policies) > maxPolicies:
		return store.PolicyPackVersion{}, fault.Invalid("a policy pack can have at most %d policies; divide it", maxPolicies)
	}
	levels, configurable, err := levelsOf(n.Policies)
	if err != nil {
		return store.PolicyPackVersion{}, err
	}
	policies, err1 := json.Marshal(n.Policies)
	details, err2 := json.Marshal(n.Details)
	if err := errors.Join(err1, err2); err != nil {
		return store.PolicyPackVersion{}, fmt.Errorf("encoding a policy pack: %w", err)
	}
	if len(policies) > maxDescribe || len(details) > maxDetails {
		return store.PolicyPackVersion{}, fault.New(fault.KindTooLarge, "the policies of a pack can have %s of descriptions and schemas, and the pack itself %s",
			words.Bytes(int64(maxDescribe)), words.Bytes(int64(maxDetails)))
	}
	return store.PolicyPackVersion{
		ID: identity.NewID(), Tag: n.Tag, Status: store.PackIncomplete, DisplayName: displayName(n), Runtime: n.Runtime,
		Details: string(details), Policies: string(policies), Levels: levels, Configurable: configurable,
	}, nil
}

func displayName(n Draft) string {
	if name := termtext.OneLine(n.DisplayName, maxName); name != "" {
		return name
	}
	return n.Name
}

// levelsOf returns the default levels of policies, and whether the pack can be configured: then the client adds a
// property for the level to the schema of each policy.
func levelsOf(list []Policy) (levels []store.PolicyLevel, configurable bool, err error) {
	seen := map[string]bool{}
	configurable = true
	for i := range list {
		p := &list[i]
		if p.EnforcementLevel == "" {
			p.EnforcementLevel = Advisory
		}
		switch {
		case p.Name == "" || len(p.Name) > maxName || termtext.OneLine(p.Name, 0) != p.Name:
			return nil, false, fault.Invalid("the name of a policy must be one line of 1 to %d bytes", maxName)
		case p.Name == EveryPolicy:
			return nil, false, fault.Invalid("a policy cannot have the name %q, with which configurations mean all policies of a pack; rename it", EveryPolicy)
		case seen[p.Name]:
			return nil, false, fault.Invalid("the policy pack has two policies with the name %q", p.Name)
		case !slices.Contains(levelNames, p.EnforcementLevel):
			return nil, false, fault.Invalid("the enforcement level of policy %q must be advisory, mandatory, remediate or disabled", p.Name)
		}
		seen[p.Name] = true
		levels = append(levels, store.PolicyLevel{Name: p.Name, Level: p.EnforcementLevel})
		if p.ConfigSchema == nil || p.ConfigSchema.Properties[LevelKey] == nil {
			configurable = false
		}
	}
	return levels, configurable, nil
}

// packFor returns the pack of a new version, whose number is then the last of the pack.
func packFor(tx *store.Tx, org store.Organization, v store.PolicyPackVersion, n Draft) (store.PolicyPack, error) {
	pack, err := tx.PolicyPackByName(org.ID, n.Name)
	if errors.Is(err, store.ErrNotFound) {
		count, err := tx.CountPolicyPacks(org.ID)
		if err != nil {
			return pack, err
		}
		if count >= maxPacks {
			return pack, fault.Invalid("an organization can have at most %d policy packs", maxPacks)
		}
		pack = store.PolicyPack{
			ID: identity.NewID(), OrgID: org.ID, Name: n.Name, DisplayName: v.DisplayName, Runtime: n.Runtime, LastNumber: 1, CreatedAt: v.CreatedAt,
		}
		return pack, tx.InsertPolicyPack(pack)
	}
	if err != nil {
		return pack, err
	}
	if pack.Runtime != "" && n.Runtime != "" && pack.Runtime != n.Runtime {
		return pack, fault.Invalid("policy pack %s has the runtime %s, which cannot change to %s: publish a pack with another name", pack.Name, pack.Runtime, n.Runtime)
	}
	count, err := tx.CountPackVersions(pack.ID)
	switch {
	case err != nil:
		return pack, err
	case count >= maxVersions:
		return pack, fault.Invalid("policy pack %s has %d versions: remove old ones, for example with pulumi policy rm %s/%s VERSION", pack.Name, count, org.Name, pack.Name)
	case pack.LastNumber >= maxNumber:
		return pack, fault.Invalid("policy pack %s has had %d versions, with removed ones, and cannot get more: publish a pack with another name", pack.Name, pack.LastNumber)
	}
	if n.Runtime != "" {
		pack.Runtime = n.Runtime
	}
	pack.LastNumber++
	return pack, tx.SavePolicyPack(pack)
}

// freeTag removes an incomplete version with a tag. It returns an error if the tag is used.
func freeTag(tx *store.Tx, pack store.PolicyPack, tag string) error {
	old, err := tx.PackVersionByTag(pack.ID, tag)
	if err != nil {
		return store.IgnoreMissing(err)
	}
	switch old.Status {
	case store.PackIncomplete:
		return tx.DeletePackVersion(old.ID) // the sweep removes its archive
	case store.PackRemoved:
		return fault.Conflict("policy pack %s had a version %s, which was removed; a version is never used again, because clients may have kept it: publish another one", pack.Name, tag)
	default:
		return fault.Conflict("policy pack %s already has version %s, and published versions never change: publish another one", pack.Name, tag)
	}
}

// freeNumber keeps the names of versions apart: clients name a version without a tag by its number, and keep it by that
// name. It skips numbers that are tags, and returns an error if the tag is the number of a version without one.
func freeNumber(tx *store.Tx, pack *store.PolicyPack, tag string) error {
	if tag != "" {
		number, bad := strconv.ParseInt(tag, 10, 64)
		if bad != nil {
			return nil //nolint:nilerr // a tag that is not a number is no other version's name
		}
		old, err := tx.PackVersionByNumber(pack.ID, number)
		if err == nil && old.Tag == "" {
			err = fault.Conflict("policy pack %s has a version without a tag, which clients name by its number %d: publish another version than %s", pack.Name, number, tag)
		}
		return store.IgnoreMissing(err)
	}
	for {
		_, err := tx.PackVersionByTag(pack.ID, strconv.FormatInt(pack.LastNumber, 10))
		if errors.Is(err, store.ErrNotFound) {
			return tx.SavePolicyPack(*pack)
		}
		if err != nil {
			return err
		}
		pack.LastNumber++
	}
}

// Confirm completes a version whose archive has been uploaded. v is its tag or number.
func (s *Service) Confirm(ctx context.Context, org store.Organization, name, v string) error {
	pack, version, err := s.find(ctx, org, name, v, true)
	if err != nil {
		return err
	}
	if err := s.checkArchive(ctx, pack, version); err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		now, err := tx.PackVersion(version.ID)
		if err != nil || now.Status != store.PackIncomplete || now.Blob != version.Blob {
			return store.IfMissing(err, fault.Conflict("version %s of policy pack %s was published again meanwhile; repeat the command", v, name))
		}
		now.Status, now.CompletedAt = store.PackComplete, tx.Now()
		if err := tx.SavePackVersion(now); err != nil {
			return err
		}
		pack, err := tx.PolicyPack(now.PackID)
		if err != nil {
			return err
		}
		pack.DisplayName = now.DisplayName
		if err := tx.SavePolicyPack(pack); err != nil {
			return err
		}
		return recordVersion(ctx, tx, audit.PolicyPackPublished, pack, now, map[string]any{"sha256": now.SHA256, "bytes": now.Size, "configurable": now.Configurable})
	})
}

// checkArchive returns an error if the archive of an incomplete version is missing. Clients ignore the answer to the
// upload, so only this tells them that it has failed.
func (s *Service) checkArchive(ctx context.Context, pack store.PolicyPack, v store.PolicyPackVersion) error {
	if v.Status != store.PackIncomplete {
		return fault.Invalid("version %s of policy pack %s is published already", label(v), pack.Name)
	}
	var size int64
	if v.Blob != "" {
		var err error
		if size, err = s.db.Blobs().Size(ctx, v.Blob); err != nil {
			return fmt.Errorf("looking for the archive of a policy pack: %w", err)
		}
	}
	if v.Blob == "" || size != v.Size {
		return fault.Invalid("the archive of version %s of policy pack %s has not arrived: it can have at most %s, and its address is valid for %s; publish it again",
			label(v), pack.Name, words.Bytes(s.maxBytes), words.Duration(addressLife))
	}
	return nil
}

func recordVersion(ctx context.Context, tx *store.Tx, action audit.Action, pack store.PolicyPack, v store.PolicyPackVersion, more map[string]any) error {
	detail := map[string]any{"version": v.Number, "tag": v.Tag}
	maps.Copy(detail, more)
	return audit.Record(ctx, tx, audit.Entry{
		OrgID: pack.OrgID, Action: action, Subject: audit.Subject{Kind: "policy-pack", ID: pack.ID, Name: pack.Name}, Detail: detail,
	})
}
