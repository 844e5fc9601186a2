// Package audit keeps the audit log: who changed what or read secrets, from where and when. The method
// of a domain that makes a change calls [Record] in the change's transaction, and one that returns
// secrets calls [RecordRead] before. The context of a request says who makes it and where it comes
// from; see [With].
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// Topic is the notification channel for new entries. The payload is the organization's id, or "-"
// for the whole server.
const Topic = "audit"

// ServerPayload is the payload of [Topic] for entries about the whole server.
const ServerPayload = "-"

// The ways on which changes reach the server.
const (
	WayAPI      = "api"
	WayConsole  = "console"
	WayAgent    = "agent"
	WaySchedule = "schedule"
	WayWebhook  = "webhook"
	WayForge    = "forge"   // an event of a repository
	WayCommand  = "command" // a command on the server's machine
	WayServer   = "server"  // the server itself
)

// Ways returns the ways on which changes reach the server.
func Ways() []string {
	return []string{WayAPI, WayConsole, WayAgent, WaySchedule, WayWebhook, WayForge, WayCommand, WayServer}
}

// Changed stands for the value of a secret in a detail.
const Changed = "changed"

// maxName bounds names, maxDetail bounds a detail in bytes.
const (
	maxName   = 300
	maxDetail = 4000
)

// ActorServer is the kind of the actor of changes that no caller requested, ActorVisitor that of a
// caller who is not signed in, ActorForge that of accounts of forges, which have no rights on
// the server, and ActorOperator that of users of the server's machine. The other kinds are those of package
// identity.
const (
	ActorServer   = "server"
	ActorVisitor  = "visitor"
	ActorForge    = "forge"
	ActorOperator = "operator"
)

// Actor is who made a change.
type Actor struct {
	Kind, ID, Name string
	// TokenID and TokenName name the token with which the actor signed the request.
	TokenID, TokenName string
}

// Source is where a change comes from.
type Source struct {
	// Address is the address of the client, or "".
	Address string
	Way     string
	Actor   Actor
}

type sourceKey struct{}

// With returns a context whose changes come from a source.
func With(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// As returns a context whose changes an actor makes.
func As(ctx context.Context, a Actor) context.Context {
	s := sourceOf(ctx)
	s.Actor = a
	return With(ctx, s)
}

// By returns a context whose changes come on a way, without an address.
func By(ctx context.Context, way string, a Actor) context.Context {
	return With(ctx, Source{Way: way, Actor: a})
}

func sourceOf(ctx context.Context) Source {
	s, ok := ctx.Value(sourceKey{}).(Source)
	if !ok {
		s.Way = WayServer
	}
	return s
}

// Subject is what a change is about.
type Subject struct{ Kind, ID, Name string }

// Stack returns a stack as a subject.
func Stack(st store.Stack) Subject { return Subject{Kind: "stack", ID: st.ID, Name: st.Ref()} }

// Environment returns an environment as a subject.
func Environment(e store.Environment) Subject {
	return Subject{Kind: "environment", ID: e.ID, Name: e.Ref()}
}

// Entry is a change to record.
type Entry struct {
	// OrgID is the organization of the subject, or "" for the whole server.
	OrgID   string
	Action  Action
	Subject Subject
	// Detail contains what else matters. It must not contain secrets; see [Changed].
	Detail map[string]any
	// Actor replaces the actor of the context.
	Actor *Actor
}

// Record adds an entry to the audit log. The entry exists only if the transaction commits.
func Record(ctx context.Context, tx *store.Tx, e Entry) error {
	row, err := rowOf(ctx, tx, e)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("making the id of an audit entry: %w", err)
	}
	row.ID = id.String()
	return tx.InsertAuditEntry(row)
}

// rowOf returns the row of an entry without its id, and notifies those who follow the log.
func rowOf(ctx context.Context, tx *store.Tx, e Entry) (store.AuditEntry, error) {
	s := sourceOf(ctx)
	if e.Actor != nil {
		s.Actor = *e.Actor
	}
	if s.Actor == (Actor{}) {
		s.Actor = Actor{Kind: ActorServer, Name: ActorServer}
	}
	detail, err := encode(e.Detail)
	if err != nil {
		return store.AuditEntry{}, err
	}
	tx.Notify(Topic, cmp.Or(e.OrgID, ServerPayload))
	return store.AuditEntry{
		OrgID: e.OrgID, At: tx.Now(),
		ActorKind: s.Actor.Kind, ActorID: s.Actor.ID, Actor: line(s.Actor.Name), TokenID: s.Actor.TokenID, TokenName: line(s.Actor.TokenName),
		Action: string(e.Action), SubjectKind: e.Subject.Kind, SubjectID: e.Subject.ID, Subject: line(e.Subject.Name),
		Address: line(s.Address), Way: s.Way, Detail: detail,
	}, nil
}

func line(text string) string { return termtext.OneLine(text, maxName) }

// encode returns a detail as JSON, with long texts shortened. A detail that is still too large is
// omitted.
func encode(detail map[string]any) (string, error) {
	short := make(map[string]any, len(detail))
	for key, v := range detail {
		if text, ok := v.(string); ok {
			v = line(text)
		}
		short[key] = v
	}
	raw, err := json.Marshal(short)
	if err != nil {
		return "", fmt.Errorf("encoding the detail of an audit entry: %w", err)
	}
	if len(raw) > maxDetail {
		return `{"omitted":"the detail is too large"}`, nil
	}
	return string(raw), nil
}
