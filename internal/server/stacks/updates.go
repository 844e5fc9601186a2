package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

// UpdateTopic is the notification channel for created, started and finished updates. The payload is
// the update's id.
const UpdateTopic = "update"

// Topic is the channel of notifications about changes of stacks: their updates, state, name and
// tags. The payload is the organization's id, a slash, and the stack's id.
const Topic = "stack"

// changed notifies of a change of a stack.
func changed(tx *store.Tx, st store.Stack) { tx.Notify(Topic, st.OrgID+"/"+st.ID) }

// Program is a client's description of an update that the client will run.
type Program struct {
	Name        string                     `json:"name"`
	Runtime     string                     `json:"runtime"`
	Main        string                     `json:"main"`
	Description string                     `json:"description"`
	Options     map[string]json.RawMessage `json:"options"`
	Config      map[string]ConfigValue     `json:"config"`
	Metadata    Metadata                   `json:"metadata"`
	// CoherenceWindow is the name of a group of updates that observe each other's results.
	CoherenceWindow string `json:"coherenceWindow,omitempty"`
	// Environment is what the update has got of the environment that its stack manages, or nil.
	Environment *ProgramEnvironment `json:"environment,omitempty"`
}

// ProgramEnvironment names the definition of a managed environment with which an update was evaluated.
type ProgramEnvironment struct {
	BaseRevision int64 `json:"baseRevision"`
	// ChangeRequestID is the id of the draft that the update publishes; "" if it uses the published revision.
	ChangeRequestID string `json:"changeRequestID,omitempty"`
	DraftRevision   int64  `json:"draftRevision"`
}

// EnvironmentOf returns what an update has got of the environment that its stack manages, or nil. program is the text with which
// the update is stored.
func EnvironmentOf(program string) *ProgramEnvironment {
	raw := rawjson.Member([]byte(program), "environment")
	var e ProgramEnvironment
	if raw == nil || json.Unmarshal(raw, &e) != nil { // CreateUpdate encoded it
		return nil
	}
	return &e
}

// ConfigValue is a configuration value of an update. A secret value is a ciphertext.
type ConfigValue struct {
	String string `json:"string"`
	Secret bool   `json:"secret"`
	Object bool   `json:"object"`
}

// Metadata is a client's description of an update's origin.
type Metadata struct {
	Message     string            `json:"message"`
	Environment map[string]string `json:"environment"`
}

func (p Program) dryRun() bool {
	var b bool
	return json.Unmarshal(p.Options["dryRun"], &b) == nil && b
}

// targetFlags are the flags of pulumi that restrict an update to some resources.
var targetFlags = []string{"target", "target-dependents", "target-replace", "exclude", "exclude-dependents"}

// targeted reports whether an update was started with such a flag, or with the variable that stands for it. The client
// reports what is set as "set", or as "true" or "false", but not which resources it names.
func (p Program) targeted() bool {
	set := func(name string) bool {
		v := p.Metadata.Environment[name]
		return v != "" && v != "false"
	}
	return slices.ContainsFunc(targetFlags, func(name string) bool {
		return set("pulumi.flag."+name) || set("pulumi.env.PULUMI_OPTION_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	})
}

// maxProgram is the maximum size of an update's program in bytes. The largest part is the stack
// configuration.
const maxProgram = 2 << 20

// maxMetadata is the maximum size of an update's metadata in bytes. Lists contain the metadata of
// every update.
const maxMetadata = 128 << 10

// ProgramMemory is the memory required to read and send a long program, in bytes. Callers of
// [Service.Describe] reserve this memory before they start the response, and hold one program at a
// time.
const ProgramMemory = 6 * maxProgram

// LongProgram reports whether an update's program is missing in lists of updates.
func LongProgram(u store.Update) bool { return u.Program == "" }

// Description is the part of an update's program that histories contain, as JSON. Its members have
// the types of the members of [Program] and [Metadata].
type Description struct{ Message, Environment, Config json.RawMessage }

// Describe returns an update's description. It needs up to [ProgramMemory]. It does not decode the
// program, because histories contain many.
func (s *Service) Describe(ctx context.Context, u store.Update) (Description, error) {
	text := u.Program
	if LongProgram(u) {
		var err error
		if text, err = store.Read(ctx, s.db, func(tx *store.Tx) (string, error) { return tx.Program(u.ID) }); err != nil {
			return Description{}, fmt.Errorf("reading an update: %w", err)
		}
	}
	// CreateUpdate encoded the program; an import has none.
	program := []byte(text)
	metadata := rawjson.Member(program, "metadata")
	return Description{
		Message:     valueOr(rawjson.Member(metadata, "message"), `""`),
		Environment: valueOr(rawjson.Member(metadata, "environment"), "{}"),
		Config:      valueOr(rawjson.Member(program, "config"), "{}"),
	}, nil
}

// valueOr returns a copy of a JSON value, or otherwise if the value is absent or null. The copy does
// not hold the memory of the whole program.
func valueOr(value []byte, otherwise string) json.RawMessage {
	if value == nil || string(value) == "null" {
		return json.RawMessage(otherwise)
	}
	return bytes.Clone(value)
}

// CreateUpdate records an update that a client is about to start. also runs in the same transaction, possibly repeatedly.
func (s *Service) CreateUpdate(ctx context.Context, p identity.Principal, st store.Stack, kind Kind, prog Program, also ...func(tx *store.Tx, u store.Update) error) (store.Update, error) {
	if prog.CoherenceWindow != "" {
		return store.Update{}, fault.Invalid("this server does not offer coherence windows; run pulumi without --coherence-window")
	}
	described := len(prog.Metadata.Message)
	for k, v := range prog.Metadata.Environment {
		described += len(k) + len(v)
	}
	if described > maxMetadata {
		return store.Update{}, fault.New(fault.KindTooLarge, "the message and environment of the update exceed %d bytes", maxMetadata)
	}
	text, err := json.Marshal(prog)
	if err != nil {
		return store.Update{}, fmt.Errorf("encoding an update: %w", err)
	}
	if len(text) > maxProgram {
		return store.Update{}, fault.New(fault.KindTooLarge, "the configuration of the update exceeds %d bytes", maxProgram)
	}
	shortened, err := shorten(prog, text)
	if err != nil {
		return store.Update{}, err
	}
	u := store.Update{
		ID: identity.NewID(), StackID: st.ID, Kind: string(kind), Preview: kind == KindPreview || prog.dryRun(),
		Status: string(NotStarted), RequestedBy: p.User.ID, Message: termtext.OneLine(prog.Metadata.Message, store.MaxRunMessage),
		Targeted: prog.targeted(),
	}
	if p.Kind == identity.KindOrg {
		u.TokenID = p.TokenID
	}
	if err := CheckRun(p, st, u); err != nil {
		return store.Update{}, err
	}
	err = s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		u.DeploymentID, u.CreatedAt = "", tx.Now()
		switch {
		case p.Kind == identity.KindJob:
			u.DeploymentID = p.DeploymentID
		// A linked update appears as the deployment's work, and its events reveal which of their
		// texts are secrets of the deployment.
		case s.hooks.LinkUpdate != nil && prog.Metadata.Environment["ci.build.id"] != "" && p.Can(st, identity.Operate):
			id, err := s.hooks.LinkUpdate(tx, st, prog.Metadata.Environment["ci.build.id"])
			if err != nil {
				return err
			}
			u.DeploymentID = id
		}
		if err := s.mayWrite(tx, u.DeploymentID); err != nil {
			return err
		}
		short, err := s.admit(tx, st, u, int64(len(text)))
		if err != nil {
			return err
		}
		if u.Program = string(text); short {
			u.Program = shortened
		}
		tx.Notify(UpdateTopic, u.ID)
		changed(tx, st)
		if err := tx.InsertUpdate(u); err != nil {
			return err
		}
		for _, each := range also {
			if err := each(tx, u); err != nil {
				return err
			}
		}
		return nil
	})
	return u, fault.While(err, "creating an update")
}

// CheckRun returns an error unless a caller may create, start and cancel an update.
func CheckRun(p identity.Principal, st store.Stack, u store.Update) error {
	return p.Check(st, toRun(u))
}

func toRun(u store.Update) identity.Ability {
	if u.Preview {
		return identity.Preview
	}
	return identity.Write
}

// FindUpdate returns an update of a stack by its id or, as clients name updates that are no previews, by its version.
func (s *Service) FindUpdate(ctx context.Context, st store.Stack, id string) (store.Update, error) {
	version, notVersion := strconv.ParseInt(id, 10, 64)
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Update, error) {
		if notVersion == nil {
			return tx.UpdateByVersion(st.ID, version)
		}
		return tx.Update(id)
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && u.StackID != st.ID {
		return store.Update{}, fault.NotFound("stack '%s' has no update %q", st.Ref(), id)
	}
	return u, fault.While(err, "looking up an update")
}

// Started describes a started update.
type Started struct {
	Version        int64
	Token          string
	Expires        time.Time
	JournalVersion int64 // version of the journal to send; 0 if the client sends checkpoints
}

// NewTags are tags that a caller gives to a stack in place of all others.
type NewTags struct {
	Tags map[string]string
	By   identity.Principal
}

// Start starts an update. It grants a lease and, unless the update is a preview, acquires the
// stack. It replaces the stack's tags unless tags is nil. journalVersion is the newest version of
// the journal that the client can send, or 0. Start returns a conflict if another update holds the
// stack, and an error if a deployment's update would neither send a journal nor prepare checkpoints.
func (s *Service) Start(ctx context.Context, u store.Update, tags *NewTags, journalVersion int64) (Started, error) {
	token, hash := identity.NewToken()
	var out Started
	owners, err := s.startOwners(ctx, u)
	if err != nil {
		return Started{}, err
	}
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
		cur, now, err := readUpdate(tx, u.ID)
		if err != nil {
			return err
		}
		if !Status(cur.Status).CanBecome(Running) {
			return fault.Conflict("the update has already been started; its status is %q", cur.Status)
		}
		if err := s.mayWrite(tx, cur.DeploymentID); err != nil {
			return err
		}
		st, err := tx.Stack(cur.StackID)
		if err != nil {
			return err
		}
		if !cur.Preview {
			cur.JournalVersion = max(0, min(journalVersion, journal.Version))
			if err := checkJournal(tx, cur); err != nil {
				return err
			}
			if err := s.free(tx, &st, now); err != nil {
				return err
			}
			st.Version++
			st.ActiveUpdate = cur.ID
			st.LastUpdateAt = now
			// The update shares the stack's state until it stores its own.
			cur.StateSchema, cur.ResourceCount = st.StateSchema, st.ResourceCount
			if err := tx.UpdateStack(st); err != nil {
				return err
			}
			if tags != nil {
				if err := replaceTags(ctx, tx, tags.By, st, tags.Tags); err != nil {
					return err
				}
			}
		}
		cur.Status, cur.Version, cur.StartedAt = string(Running), st.Version, now
		cur.LeaseHash, cur.LeaseExpiresAt = hash, now.Add(s.lease)
		out = Started{Version: st.Version, Token: token, Expires: cur.LeaseExpiresAt, JournalVersion: cur.JournalVersion}
		tx.Notify(UpdateTopic, cur.ID)
		changed(tx, st)
		if s.hooks.Started != nil {
			if err := s.hooks.Started(ctx, tx, st, cur); err != nil {
				return err
			}
		}
		return tx.StartUpdate(cur)
	})
	if err != nil {
		return Started{}, err
	}
	return out, nil
}

// startOwners returns the owners of what the start of an update changes: with an environment that it publishes, also the
// organization.
func (s *Service) startOwners(ctx context.Context, u store.Update) (scope.Set, error) {
	program := u.Program
	if LongProgram(u) {
		var err error
		if program, err = store.Read(ctx, s.db, func(tx *store.Tx) (string, error) { return tx.Program(u.ID) }); err != nil {
			return scope.Set{}, fmt.Errorf("reading an update: %w", err)
		}
	}
	owners := scope.Stack(u.OrgID, u.StackID)
	if EnvironmentOf(program) != nil {
		owners = owners.And(scope.Organization(u.OrgID))
	}
	return owners, nil
}

// free ensures that no update holds a stack. If the holder's lease has expired, free finishes the
// holder. Otherwise, free returns a conflict.
func (s *Service) free(tx *store.Tx, st *store.Stack, now time.Time) error {
	if st.ActiveUpdate == "" {
		return nil
	}
	cur, err := tx.Update(st.ActiveUpdate)
	if err != nil {
		return err
	}
	if Status(cur.Status) != Running {
		st.ActiveUpdate = ""
		return nil
	}
	if !expired(cur, now) {
		return s.errHeld(tx, *st, cur, now)
	}
	if err := s.finish(tx, cur, Failed, reasonExpired, now); err != nil {
		return err
	}
	*st, err = tx.Stack(st.ID)
	return err
}

const reasonExpired = "the client that ran this update stopped renewing its lease"

func (s *Service) finish(tx *store.Tx, u store.Update, status Status, reason string, now time.Time) error {
	if !Status(u.Status).CanBecome(status) {
		return fault.Conflict("the update cannot become %q: its status is %q", status, u.Status)
	}
	st, err := tx.Stack(u.StackID)
	if err != nil {
		return err
	}
	if st.ActiveUpdate == u.ID {
		st.ActiveUpdate = ""
		if err := tx.UpdateStack(st); err != nil {
			return err
		}
	}
	u.Status, u.Reason, u.FinishedAt = string(status), reason, now
	if s.hooks.Ended != nil {
		if err := s.hooks.Ended(tx, st, &u); err != nil {
			return err
		}
	}
	if !u.Preview && u.StateBlob == "" {
		// An update that stored no state changed nothing.
		u.StateBlob, u.StateSchema, u.ResourceCount = st.StateBlob, st.StateSchema, st.ResourceCount
	}
	tx.Notify(UpdateTopic, u.ID)
	changed(tx, st)
	if err := tx.FinishUpdate(u); err != nil {
		return err
	}
	if !u.Preview {
		if err := s.stateChanged(tx, st); err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		if u.JournalVersion > 0 {
			s.states.Finish(u.ID, u.StateBlob)
		}
		if s.hooks.UpdateFinished != nil {
			s.hooks.UpdateFinished(u)
		}
	})
	return s.recordEnd(tx, st, u)
}

// Complete finishes an update with the client's status.
func (s *Service) Complete(ctx context.Context, u store.Update, status Status) error {
	if !status.Finished() {
		return fault.Invalid("unrecognized status %q; an update completes as succeeded, failed or cancelled", status)
	}
	return s.end(ctx, u, func(_ *store.Tx, cur store.Update, now time.Time) (Status, string, error) {
		// A client repeats the same status after it lost the response.
		if Status(cur.Status) == status {
			return "", "", nil
		}
		return status, "", held(cur, now)
	})
}

// Cancel finishes an update at a user's request, revokes the client's lease and releases the stack.
func (s *Service) Cancel(ctx context.Context, u store.Update, by string) error {
	return s.end(ctx, u, func(tx *store.Tx, cur store.Update, _ time.Time) (Status, string, error) {
		switch Status(cur.Status) {
		case NotStarted:
			return "", "", fault.Conflict("The Update has not started")
		case Cancelled:
			return "", "", nil
		case Running:
			st, err := tx.Stack(cur.StackID)
			if err != nil {
				return "", "", err
			}
			detail := map[string]any{"update": cur.ID, "version": cur.Version, "kind": cur.Kind}
			err = audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.UpdateCancelled, Subject: audit.Stack(st), Detail: detail})
			return Cancelled, "cancelled by " + by, err
		default:
			return "", "", fault.Conflict("The Update has already completed")
		}
	})
}

// end finishes an update in its own transaction. decide receives the update and a time from
// [store.Tx.LeaseTime], and returns the final status and the reason. If the status is empty, end
// changes nothing.
func (s *Service) end(ctx context.Context, u store.Update, decide func(*store.Tx, store.Update, time.Time) (Status, string, error)) error {
	return s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
		cur, now, err := readUpdate(tx, u.ID)
		if err != nil {
			return err
		}
		status, reason, err := decide(tx, cur, now)
		if err != nil || status == "" {
			return err
		}
		return s.finish(tx, cur, status, reason, now)
	})
}
