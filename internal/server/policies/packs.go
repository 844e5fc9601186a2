package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// PackVersions is a pack with its complete versions, the oldest first.
type PackVersions struct {
	store.PolicyPack
	Versions []store.PackNumber
}

// label returns how clients name a version.
func label(v store.PolicyPackVersion) string { return Label(v.Tag, v.Number) }

// Label returns how clients name a version: by its tag, or by its number if it has none.
func Label(tag string, number int64) string { return cmp.Or(tag, strconv.FormatInt(number, 10)) }

// Packs returns the packs of an organization, by name; only the one with a name if it is not "".
func (s *Service) Packs(ctx context.Context, orgID, name string) ([]PackVersions, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (out []PackVersions, err error) {
		packs, err := tx.PolicyPacks(orgID)
		if err != nil {
			return nil, err
		}
		packs = slices.DeleteFunc(packs, func(p store.PolicyPack) bool { return name != "" && p.Name != name })
		if len(packs) == 0 {
			return nil, nil
		}
		only := ""
		if name != "" {
			only = packs[0].ID
		}
		numbers, err := tx.PackNumbers(orgID, only)
		of := map[string][]store.PackNumber{}
		for _, n := range numbers {
			of[n.PackID] = append(of[n.PackID], n)
		}
		for _, p := range packs {
			out = append(out, PackVersions{p, of[p.ID]})
		}
		return out, err
	})
	return out, fault.While(err, "listing policy packs")
}

// Version returns a complete version of a pack by its tag or number, or the newest one if v is "". applied reports
// whether a group enables it.
func (s *Service) Version(ctx context.Context, org store.Organization, name, v string) (pack store.PolicyPack, version store.PolicyPackVersion, applied bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		if pack, version, err = findVersion(tx, org, name, v, false); err != nil {
			return err
		}
		groups, err := tx.GroupsWithVersion(version.ID)
		applied = len(groups) > 0
		return err
	})
	return pack, version, applied, err
}

func (s *Service) find(ctx context.Context, org store.Organization, name, v string, incomplete bool) (pack store.PolicyPack, version store.PolicyPackVersion, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		pack, version, err = findVersion(tx, org, name, v, incomplete)
		return err
	})
	return pack, version, err
}

// findVersion returns a version by its tag, else by its number, or the newest one if v is "". incomplete is set to find
// incomplete versions, too.
func findVersion(tx *store.Tx, org store.Organization, name, v string, incomplete bool) (store.PolicyPack, store.PolicyPackVersion, error) {
	var version store.PolicyPackVersion
	pack, err := tx.PolicyPackByName(org.ID, name)
	if err != nil {
		return pack, version, store.IfMissing(err, noPack(org, name))
	}
	if v == "" {
		version, err = tx.NewestPackVersion(pack.ID)
		return pack, version, store.IfMissing(err, noPack(org, name))
	}
	visible := func(version store.PolicyPackVersion) bool {
		return version.Status == store.PackComplete || incomplete && version.Status == store.PackIncomplete
	}
	version, err = tx.PackVersionByTag(pack.ID, v)
	if number, bad := strconv.ParseInt(v, 10, 64); bad == nil && (errors.Is(err, store.ErrNotFound) || err == nil && !visible(version)) {
		version, err = tx.PackVersionByNumber(pack.ID, number)
	}
	if err == nil && !visible(version) {
		err = store.ErrNotFound
	}
	return pack, version, store.IfMissing(err, noVersion(org, name, v))
}

func noVersion(org store.Organization, name, v string) error {
	return fault.NotFound("policy pack %s has no version %s; run pulumi policy ls %s", name, v, org.Name)
}

func noPack(org store.Organization, name string) error {
	return fault.NotFound("organization %s has no policy pack %s; run pulumi policy ls %s", org.Name, name, org.Name)
}

// Remove removes a version of a pack, or all versions if v is "". A version that a group enables cannot be removed. The
// numbers and tags are never used again.
func (s *Service) Remove(ctx context.Context, org store.Organization, name, v string) error {
	var blobs []string
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		blobs = nil
		pack, version, err := findVersion(tx, org, name, v, true)
		if err != nil {
			return err
		}
		list := []store.PackArchive{{ID: version.ID, PackID: pack.ID, Number: version.Number, Tag: version.Tag, Blob: version.Blob}}
		groups, err := tx.GroupsWithVersion(version.ID)
		if v == "" {
			if groups, err = tx.GroupsWithPack(pack.ID); err == nil {
				list, err = tx.PackArchives(pack.ID)
			}
		}
		if err != nil {
			return err
		}
		if len(groups) > 0 {
			return inUse(pack, v, groups)
		}
		for _, version := range list {
			blobs = append(blobs, version.Blob)
			if err := tx.RemovePackVersion(version.ID); err != nil {
				return err
			}
			if err := recordVersion(ctx, tx, audit.PolicyPackRemoved, pack, store.PolicyPackVersion{Number: version.Number, Tag: version.Tag}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		s.drop(ctx, blob)
	}
	return nil
}

func inUse(pack store.PolicyPack, v string, groups []string) error {
	const text = "policy pack %s is enabled in the policy groups %s: disable it there first"
	if v == "" {
		return fault.Invalid(text, pack.Name, strings.Join(groups, ", "))
	}
	return fault.Conflict("version %s of "+text, v, pack.Name, strings.Join(groups, ", "))
}

// drop removes an archive that no version names, if it is not "".
func (s *Service) drop(ctx context.Context, blob string) {
	if blob == "" {
		return
	}
	if err := s.db.Blobs().Delete(context.WithoutCancel(ctx), blob); err != nil {
		s.log.WithError(err).Warn("removing the archive of a policy pack failed; the sweep removes it")
	}
}

// open returns a version whose archive can be read; see [Service.Download].
func (s *Service) open(ctx context.Context, id string) (store.PolicyPackVersion, error) {
	v, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.PolicyPackVersion, error) { return tx.PackVersion(id) })
	if err == nil && v.Status != store.PackComplete {
		err = store.ErrNotFound
	}
	if err != nil {
		return v, store.IfMissing(err, fault.NotFound("this version of a policy pack does not exist any more; repeat the command"))
	}
	size, err := s.db.Blobs().Size(ctx, v.Blob)
	if err != nil {
		return v, fmt.Errorf("reading the archive of a policy pack: %w", err)
	}
	if size != v.Size {
		return v, fault.New(fault.KindDamaged, "the archive of this version of a policy pack is missing or damaged; remove the version, and publish a new one")
	}
	return v, nil
}
