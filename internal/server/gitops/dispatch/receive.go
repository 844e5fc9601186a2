package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/workflow"
)

// Outcome is what became of a delivery.
type Outcome struct {
	Accepted int        // number of events that are processed
	Ignored  vcs.Reason // why the delivery, or its last ignored event, is not processed; "" if all are
	Detail   string
}

// errUnverified is the same for an unknown integration and a wrong signature, so that callers learn
// neither.
var errUnverified = fault.New(fault.KindUnauthenticated, "the integration does not exist, or the delivery is not signed with its secret")

// Expect returns an error unless deliveries to an integration are possible. Callers use it before they
// read the body of a delivery.
func (s *Service) Expect(ctx context.Context, provider, id string) error {
	_, err := s.addressee(ctx, provider, id)
	return err
}

// ExpectApp is like [Service.Expect], for a GitHub App.
func (s *Service) ExpectApp(ctx context.Context, app string) error {
	all, err := s.ofApp(ctx, app)
	if err == nil && len(all) == 0 {
		err = errUnverified
	}
	return err
}

// addressee returns the integration to which a delivery is addressed.
func (s *Service) addressee(ctx context.Context, provider, id string) (store.VCSIntegration, error) {
	i, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSIntegration, error) { return tx.Integration(id) })
	if errors.Is(err, store.ErrNotFound) || err == nil && vcs.ForgeKey(i.Provider, i.Flavor) != provider {
		err = errUnverified
	}
	return i, err
}

func (s *Service) ofApp(ctx context.Context, app string) ([]store.VCSIntegration, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.VCSIntegration, error) { return tx.IntegrationsOfApp(app) })
}

// Receive stores the events of a delivery to an integration. When it returns, they are durable. It
// makes no requests.
func (s *Service) Receive(ctx context.Context, provider, id string, d vcs.Delivery) (Outcome, error) {
	i, err := s.addressee(ctx, provider, id)
	if err != nil {
		return Outcome{}, err
	}
	p, err := s.open(ctx, i, d)
	if err != nil {
		return Outcome{}, err
	}
	return s.store(ctx, i, p, SourceWebhook)
}

// ReceiveApp stores the events of a delivery of a GitHub App, whose installations have one webhook.
func (s *Service) ReceiveApp(ctx context.Context, app string, d vcs.Delivery) (Outcome, error) {
	candidates, err := s.ofApp(ctx, app)
	if err != nil {
		return Outcome{}, err
	}
	// The app's id is not signed. It only selects the integrations whose secrets are tried. Organizations
	// can share an installation; each of them gets the events.
	verified, found := false, false
	var all Outcome
	for _, i := range candidates {
		p, err := s.open(ctx, i, d)
		if errors.Is(err, errUnverified) {
			continue
		}
		if err != nil {
			return Outcome{}, err
		}
		if verified = true; p.Installation != i.Installation {
			continue
		}
		out, err := s.store(ctx, i, p, SourceWebhook)
		if err != nil {
			return Outcome{}, err
		}
		found, all.Accepted = true, all.Accepted+out.Accepted
		all.Ignored, all.Detail = out.Ignored, out.Detail
	}
	switch {
	case !verified:
		return Outcome{}, errUnverified
	case !found:
		return Outcome{Ignored: vcs.ReasonUnknownRepo, Detail: "no integration of this installation exists"}, nil
	}
	return all, nil
}

// open verifies and parses a delivery.
func (s *Service) open(ctx context.Context, i store.VCSIntegration, d vcs.Delivery) (p vcs.Parsed, err error) {
	forge, err := s.opts.Integrations.Forge(i)
	if err != nil {
		return p, err
	}
	now, err := s.db.Now(ctx)
	if err != nil {
		return p, err
	}
	secrets, err := s.opts.Integrations.HookSecrets(ctx, i, now)
	if err != nil {
		return p, err
	}
	if len(secrets) == 0 || forge.Verify(d, secrets) != nil {
		return p, errUnverified
	}
	p, err = parse(forge, d)
	if err != nil {
		return p, fault.Wrap(fault.KindInvalid, err, "the delivery is not as the forge documents it: %s", err)
	}
	return p, nil
}

// parse parses a delivery, and identifies those of its events that must not be repeated.
func parse(forge vcs.Forge, d vcs.Delivery) (vcs.Parsed, error) {
	p, err := forge.Parse(d)
	for n := range p.Events {
		if e := &p.Events[n]; e.Kind == vcs.KindRerun {
			e.Content = digest(d)
		}
	}
	return p, err
}

// digest returns the hash of a body. The forge's API returns a body with other spaces and another order
// of members than the delivery, and without a form, so JSON is hashed in one form.
func digest(d vcs.Delivery) string {
	body, err := hook.Payload(d)
	if err != nil {
		body = d.Body
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&value) == nil {
		if one, err := json.Marshal(value); err == nil {
			body = one
		}
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// store stores the events of an authentic delivery.
func (s *Service) store(ctx context.Context, i store.VCSIntegration, p vcs.Parsed, source string) (out Outcome, err error) {
	p.ID = cmp.Or(p.ID, identity.NewID())
	held, err := store.Read(ctx, s.db, func(tx *store.Tx) (map[string]bool, error) { return reposOf(tx, i, p.Events) })
	if err == nil {
		owners := scope.Organization(i.OrgID).Shared()
		for id := range held {
			owners = owners.And(scope.Repository(i.OrgID, id))
		}
		out, err = s.storeIn(ctx, owners, held, i, p, source)
	}
	if errors.Is(err, errFound) {
		out, err = s.storeIn(ctx, scope.Organization(i.OrgID), nil, i, p, source)
	}
	if errors.Is(err, store.ErrConflict) { // the same delivery at the same time
		out, err = Outcome{Ignored: vcs.ReasonDuplicate}, nil
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("storing a delivery: %w", err)
	}
	s.log.WithFields(logrus.Fields{"integration_id": i.ID, "delivery_id": p.ID, "source": source, "accepted": out.Accepted, "reason": out.Ignored}).Info("received a delivery")
	return out, nil
}

// errFound means that a delivery tells the repository of a watch, so that it concerns the organization.
var errFound = errors.New("a delivery is the first about a repository")

// reposOf returns the ids of the known repositories of events.
func reposOf(tx *store.Tx, i store.VCSIntegration, all []vcs.Event) (map[string]bool, error) {
	ids := map[string]bool{}
	for _, e := range all {
		if e.Kind == vcs.KindAccess {
			continue
		}
		r, err := knownRepo(tx, i, e.Repo)
		if store.IgnoreMissing(err) != nil {
			return nil, err
		}
		if err == nil {
			ids[r.ID] = true
		}
	}
	return ids, nil
}

// storeIn stores the events of a delivery in a transaction that holds owners: some repositories, or the
// organization if held is nil.
func (s *Service) storeIn(ctx context.Context, owners scope.Set, held map[string]bool, i store.VCSIntegration, p vcs.Parsed, source string) (out Outcome, err error) {
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
		out = Outcome{Ignored: p.Ignored.Reason, Detail: p.Ignored.Detail}
		for _, e := range p.Events {
			reason, err := s.accept(tx, held, i, p.ID, source, e)
			if err == nil && s.opts.Heard != nil && e.Kind != vcs.KindAccess && reason != vcs.ReasonDuplicate {
				var heard bool
				if heard, err = s.opts.Heard(tx, i, e); heard && reason == vcs.ReasonUnwatched {
					reason = ""
				}
			}
			if err != nil {
				return err
			}
			if reason == "" {
				out.Accepted++
			} else {
				out.Ignored = reason
			}
		}
		return nil
	})
	return out, err
}

// accept stores an event of a delivery, unless it returns the reason to ignore it.
func (s *Service) accept(tx *store.Tx, held map[string]bool, i store.VCSIntegration, deliveryID, source string, e vcs.Event) (vcs.Reason, error) {
	known, err := tx.HasVCSEvent(i.ID, deliveryID, string(e.Kind), subjectOf(e))
	if err != nil || known {
		return vcs.ReasonDuplicate, err
	}
	if e.Kind == vcs.KindAccess {
		return "", insert(tx, i, store.VCSRepo{}, deliveryID, source, e)
	}
	r, reason, err := repoOf(tx, held, i, e.Repo)
	if err == nil && held != nil && r.ID != "" && !held[r.ID] {
		err = errFound
	}
	if err != nil {
		return "", err
	}
	if reason == vcs.ReasonOtherRepo {
		row := newEvent(tx, i, store.VCSRepo{Name: e.Repo.Name}, deliveryID, source, e)
		row.Done, row.DoneAt, row.Reason = true, tx.Now(), string(reason)
		return reason, tx.InsertVCSEvent(row)
	}
	if reason != "" {
		return reason, nil
	}
	if source == SourceWebhook && r.HookAt.Before(tx.Now()) {
		r.HookAt = tx.Now()
		if err := tx.SaveRepo(r); err != nil {
			return "", err
		}
	}
	if reason, err := idle(tx, r, e); err != nil || reason != "" {
		return reason, err
	}
	return "", insert(tx, i, r, deliveryID, source, e)
}

// idle returns the reason that an event of a delivery need not be stored, or "". Accounts that cannot
// cause deployments, such as the authors of forks, can cause any number of such events.
func idle(tx *store.Tx, r store.VCSRepo, e vcs.Event) (vcs.Reason, error) {
	switch e.Kind {
	case vcs.KindPush, vcs.KindTag:
		if len(e.Ref) > maxRef {
			return vcs.ReasonUnsupported, nil
		}
		all, err := watches(tx, r)
		if err != nil {
			return "", err
		}
		for _, w := range all {
			if e.Kind == vcs.KindTag && w.DeployTags || w.Branch != "" && e.Ref == vcs.BranchPrefix+w.Branch {
				return "", nil // also if the trigger is off, because the list of events shows that
			}
		}
		if e.Kind == vcs.KindTag {
			return vcs.ReasonTriggerOff, nil
		}
		return vcs.ReasonOtherBranch, nil
	case vcs.KindPull:
		// One event can be in work, and have asked the forge before this delivery. The other one asks
		// later.
		if n, err := tx.PendingVCSEvents(r.ID, subjectOf(e), string(e.Kind)); err != nil || n < 2 {
			return "", err
		}
		return vcs.ReasonDuplicate, nil
	default:
		return "", nil
	}
}

// repoOf returns the repository of an event, if a stack watches it. The forge's id decides: a new
// repository with the name of a watched one is another repository. The name in the event changes
// nothing here; see [Service.follow].
//
// It returns [errFound] if the event tells the repository of a watch, unless held is nil.
func repoOf(tx *store.Tx, held map[string]bool, i store.VCSIntegration, id vcs.RepoID) (r store.VCSRepo, reason vcs.Reason, err error) {
	r, err = knownRepo(tx, i, id)
	if store.IgnoreMissing(err) != nil {
		return r, "", err
	}
	found := err == nil
	named, err := tx.WatchesOfName(i.ID, integrations.NameKey(i.Provider, id.Name))
	if err != nil {
		return r, "", err
	}
	others := 0
	for _, w := range named {
		if w.RepoID != "" {
			if w.RepoID != r.ID {
				others++
			}
			continue
		}
		if held != nil {
			return r, "", errFound
		}
		if !found && forgeable(i) {
			w.FindAt = tx.Now() // the forge tells the id
			tx.Notify(integrations.Topic, i.ID)
			if err := tx.SaveWatch(w); err != nil {
				return r, "", err
			}
			continue
		}
		if !found {
			address, err := integrations.CloneURL(i, id.Name)
			if err != nil {
				return r, "", err
			}
			if r, err = integrations.Repo(tx, i, vcs.Repo{RepoID: id, CloneURL: address}); err != nil {
				return r, "", err
			}
			found = true
		}
		w.RepoID, w.Problem = r.ID, ""
		if err := tx.SaveWatch(w); err != nil {
			return r, "", err
		}
	}
	if !found {
		if others > 0 {
			return r, vcs.ReasonOtherRepo, nil
		}
		return r, vcs.ReasonUnwatched, nil
	}
	watches, err := tx.WatchesOfRepo(r.ID)
	if err != nil || len(watches) == 0 {
		if others > 0 {
			return r, vcs.ReasonOtherRepo, err
		}
		return r, vcs.ReasonUnwatched, err
	}
	return r, "", nil
}

// knownRepo returns the repository with an id of the forge, or [store.ErrNotFound].
func knownRepo(tx *store.Tx, i store.VCSIntegration, id vcs.RepoID) (store.VCSRepo, error) {
	r, err := tx.RepoByRemoteID(i.ID, id.ID)
	if errors.Is(err, store.ErrNotFound) && vcs.ForgeKey(i.Provider, i.Flavor) == vcs.FlavorGit {
		if r, err = repoAt(tx, i, id.ID); err == nil && r.ID == "" {
			err = store.ErrNotFound
		}
	}
	return r, err
}

// repoAt returns the repository of a plain git server that has an address, or none. The sender of a
// delivery can write another form of it than the integration, such as that of another protocol.
func repoAt(tx *store.Tx, i store.VCSIntegration, address string) (store.VCSRepo, error) {
	given, err := workflow.ParseRepository(address)
	if err != nil {
		return store.VCSRepo{}, nil //nolint:nilerr // no repository has it
	}
	all, err := tx.Repos(i.ID)
	if err != nil {
		return store.VCSRepo{}, err
	}
	for _, r := range all {
		if known, err := workflow.ParseRepository(r.RemoteID); err == nil && known.Same(given) {
			return r, nil
		}
	}
	return store.VCSRepo{}, nil
}

// subjectOf returns what an event is about.
func subjectOf(e vcs.Event) string {
	if e.Pull > 0 {
		return pullSubject(e.Pull)
	}
	return e.Ref
}

func pullSubject(number int) string { return fmt.Sprintf("pull/%d", number) }

func newEvent(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo, deliveryID, source string, e vcs.Event) store.VCSEvent {
	return store.VCSEvent{
		ID: identity.NewID(), OrgID: i.OrgID, IntegrationID: i.ID, RepoID: r.ID, RepoName: r.Name, DeliveryID: deliveryID, Source: source,
		Kind: string(e.Kind), Subject: subjectOf(e), BeforeID: e.Before, AfterID: e.After, ReceivedAt: tx.Now(), TryAt: tx.Now(), Document: "{}",
	}
}

// insert stores an event for the worker.
func insert(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo, deliveryID, source string, e vcs.Event) error {
	row := newEvent(tx, i, r, deliveryID, source, e)
	document, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	row.Document = string(document)
	tx.Notify(Topic, i.ID)
	return tx.InsertVCSEvent(row)
}
