package environments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/words"
)

// maxRevisions is the largest number of a revision, because all of them are kept.
const maxRevisions = 10_000

// maxImports is the largest number of environments that a definition names directly.
const maxImports = wire.MaxImports

// ETag identifies the definition of a revision, for clients that replace it.
func ETag(environmentID string, number int64) string {
	return fmt.Sprintf(`"%s-%d"`, environmentID, number)
}

// matches reports whether a condition of a client, a list of tags, permits to replace a definition.
func matches(condition, tag string) bool {
	for one := range strings.SplitSeq(condition, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/") // as proxies that compress change it
		if one == "*" || strings.Trim(one, `"`) == strings.Trim(tag, `"`) {
			return true
		}
	}
	return false
}

var errChanged = fault.Conflict("the definition has changed since you read it; read it again, and repeat your change")

// Updated is the result of a change of a definition.
type Updated struct {
	Environment store.Environment
	Diagnostics wire.Diagnostics // warnings
}

// Update replaces the definition of an environment by a new revision, whose secrets are encrypted. condition is the tag
// of the definition that the caller has read, or "". Errors of the definition are a [DiagnosticsError]. A definition that
// equals the current one makes no revision.
func (s *Service) Update(ctx context.Context, p identity.Principal, e store.Environment, definition, condition string) (Updated, error) {
	if condition != "" && !matches(condition, ETag(e.ID, e.LastNumber)) {
		return Updated{}, errChanged
	}
	checked, err := s.check(ctx, p, e, definition)
	if err != nil {
		return Updated{}, err
	}
	out := Updated{Diagnostics: checked.Diagnostics}
	err = s.change(ctx, p, e, store.WriteEnvironment, "changing the definition of an environment", func(tx *store.Tx, now *store.Environment) error {
		out.Environment = *now
		if condition != "" && !matches(condition, ETag(now.ID, now.LastNumber)) {
			return errChanged
		}
		current, err := tx.Revision(now.ID, now.LastNumber)
		if err != nil || current.Definition == checked.Definition {
			return err
		}
		if err := s.quota.AdmitText(tx, now.OrgID, int64(len(checked.Definition))); err != nil {
			return err
		}
		if err := addRevision(tx, authorOf(p), now, checked); err != nil {
			return err
		}
		out.Environment = *now
		return record(ctx, tx, audit.EnvironmentChanged, *now, map[string]any{"revision": now.LastNumber})
	})
	return out, err
}

// check checks a definition before it is stored, and encrypts its secrets.
func (s *Service) check(ctx context.Context, p identity.Principal, e store.Environment, definition string) (Checked, error) {
	if err := checkSize(len(definition)); err != nil {
		return Checked{}, err
	}
	key, err := s.Key(ctx, e)
	if err != nil {
		return Checked{}, err
	}
	checked, err := s.evaluator.Check(ctx, p, e, key, definition)
	if err != nil {
		return Checked{}, fault.During(err, "checking the definition of an environment")
	}
	if checked.Diagnostics.HasErrors() {
		return Checked{}, &DiagnosticsError{checked.Diagnostics}
	}
	return checked, checkResult(definition, checked)
}

func checkSize(bytes int) error {
	if bytes > MaxDefinition {
		return fault.New(fault.KindTooLarge, "the definition of an environment can have at most %s: divide it, and import the parts", words.Bytes(int64(MaxDefinition)))
	}
	return nil
}

// checkResult checks what an evaluator has made of a definition, before it is stored.
func checkResult(definition string, c Checked) error {
	switch {
	case c.Definition == "" && strings.TrimSpace(definition) != "":
		return errors.New("checking the definition of an environment: the evaluator returned no definition")
	case len(c.Imports) > maxImports:
		return fault.Invalid("an environment can import at most %d environments", maxImports)
	}
	for _, r := range c.Imports {
		if !validName(r.Project) || !validName(r.Name) || r.Version != "" && !validName(r.Version) {
			return errors.New("checking the definition of an environment: the evaluator returned an import without a valid name")
		}
	}
	return checkSize(len(c.Definition))
}

// addRevision adds a revision with a definition that was checked.
func addRevision(tx *store.Tx, by author, e *store.Environment, c Checked) error {
	if e.LastNumber >= maxRevisions {
		return fault.Invalid("environment %s has %d revisions, and can have no more: clone it without its history, and delete it", e.Ref(), maxRevisions)
	}
	e.LastNumber++
	e.ModifiedAt = tx.Now()
	if err := tx.InsertRevision(store.EnvironmentRevision{
		EnvironmentID: e.ID, Number: e.LastNumber, Definition: c.Definition, CreatedBy: by.name, CreatedAt: e.ModifiedAt,
	}); err != nil {
		return err
	}
	for _, r := range c.Imports {
		version := r.Version
		if version == "" {
			version = store.LatestVersion
		}
		if err := tx.InsertEnvironmentImport(store.EnvironmentImport{EnvironmentID: e.ID, Number: e.LastNumber, Project: r.Project, Name: r.Name, Version: version}); err != nil {
			return err
		}
	}
	if err := tx.SaveEnvironment(*e); err != nil {
		return err
	}
	if err := revisionEvent(tx, by, *e, webhooks.RevisionCreated, "created", e.LastNumber); err != nil {
		return err
	}
	return importersEvent(tx, by, *e, e.LastNumber, []string{store.LatestVersion})
}

// ErrJob is the error for a job that reads the secrets in a definition. It needs values, which are masked in its log.
var ErrJob = fault.Forbidden("the job of a deployment cannot read the secrets in a definition; open the environment instead: pulumi env open")

// Decrypt returns the definition of a revision with its secrets, and records the read.
func (s *Service) Decrypt(ctx context.Context, p identity.Principal, f Found) (string, error) {
	if p.Kind == identity.KindJob {
		return "", ErrJob
	}
	key, err := s.Key(ctx, f.Environment)
	if err != nil {
		return "", err
	}
	definition, err := s.evaluator.Decrypt(ctx, f.Environment, key, f.Revision.Definition)
	if err != nil {
		return "", fault.During(err, "decrypting the definition of an environment")
	}
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return audit.RecordRead(ctx, tx, audit.Read{
			OrgID: f.OrgID, Action: audit.EnvironmentDecrypted, Subject: audit.Environment(f.Environment), Name: fmt.Sprintf("revision %d", f.Revision.Number),
			DeploymentID: p.DeploymentID,
		})
	})
	return definition, fault.While(err, "recording a read of secrets")
}

// DiagnosticsError is the error for a definition with diagnostics that are errors.
type DiagnosticsError struct{ Diagnostics wire.Diagnostics }

func (e *DiagnosticsError) Error() string {
	for _, d := range e.Diagnostics {
		if d.Severity != wire.Warning {
			return "the definition of the environment has errors: " + d.Summary
		}
	}
	return "the definition of the environment has errors"
}
