package stacks

import (
	"context"
	"errors"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Bounds of annotations, in bytes and per stack.
const (
	maxAnnotation     = 64 << 10
	maxAnnotationName = 200
	maxAnnotations    = 100
)

// AnyVersion accepts every version of an annotation.
const AnyVersion = -1

// Annotation returns the annotation of a kind from a source, which can be "". It returns an error if
// the annotation does not have the given version.
func (s *Service) Annotation(ctx context.Context, st store.Stack, kind, source string, version int64) (store.Annotation, error) {
	a, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Annotation, error) { return tx.Annotation(st.ID, kind, source) })
	if errors.Is(err, store.ErrNotFound) {
		return a, fault.NotFound("stack '%s' has no annotation of kind %q from source %q", st.Ref(), kind, source)
	}
	if err == nil && version != AnyVersion && version != a.Version {
		return a, fault.NotFound("the annotation of kind %q has version %d, not %d", kind, a.Version, version)
	}
	return a, err
}

// Annotate adds or replaces an annotation. It returns a conflict if the annotation does not have the
// given version; a missing annotation has version 0.
func (s *Service) Annotate(ctx context.Context, p identity.Principal, st store.Stack, a store.Annotation, version int64) error {
	if a.Kind == "" || len(a.Kind) > maxAnnotationName || len(a.Source) > maxAnnotationName {
		return fault.Invalid("the kind and the source of an annotation have at most %d bytes", maxAnnotationName)
	}
	if len(a.Document) > maxAnnotation {
		return fault.New(fault.KindTooLarge, "an annotation has at most %d bytes", maxAnnotation)
	}
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		if err := s.mayWrite(tx, p.DeploymentID); err != nil {
			return err
		}
		if err := s.quota.Admit(tx, st.OrgID); err != nil {
			return err
		}
		cur, err := tx.Annotation(st.ID, a.Kind, a.Source)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if version != AnyVersion && version != cur.Version {
			return fault.Conflict("the annotation of kind %q has version %d, not %d; read it again", a.Kind, cur.Version, version)
		}
		if cur.Version == 0 {
			n, err := tx.CountAnnotations(st.ID)
			if err != nil {
				return err
			}
			if n >= maxAnnotations {
				return fault.Invalid("a stack has at most %d annotations", maxAnnotations)
			}
		}
		a.StackID, a.Version, a.ModifiedAt = st.ID, cur.Version+1, tx.Now()
		if err := tx.SaveAnnotation(a); err != nil {
			return err
		}
		detail := map[string]any{"kind": a.Kind, "source": a.Source, "version": a.Version}
		return audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StackAnnotated, Subject: audit.Stack(st), Detail: detail})
	})
}
