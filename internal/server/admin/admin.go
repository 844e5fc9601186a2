// Package admin contains the operations of the server's command line: what an administrator does on the server's
// machine, without a token. A command runs them in the running server, through package control of the API, or on
// the database if no server runs. Both encode requests and answers, so that they cannot differ.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"strconv"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/sources"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// Service runs operations.
type Service struct {
	db *store.DB
	Services
}

// Services are what the operations use.
type Services struct {
	Identity      *identity.Service
	Organizations *organizations.Service
	Sessions      *signin.Service
	Pools         *pools.Service
	Stacks        *stacks.Service
	Grants        *grants.Service
	// Sources imports environments; nil if no server runs.
	Sources *source.Service
	// EnvironmentSources synchronizes them with repositories; nil if no server runs.
	EnvironmentSources *sources.Service
	Environments       *environments.Service
	Evaluations        *evaluations.Service
	Backups            *backup.Service
	Recovery           *recovery.Service
	// Console is the console's address for browsers, or "" if it is not known.
	Console links.Console
}

// New returns a service that uses a database.
func New(db *store.DB, services Services) *Service { return &Service{db: db, Services: services} }

// Caller runs operations by their names, in this process or in another one.
type Caller interface {
	Call(ctx context.Context, operation string, request []byte) (answer []byte, err error)
}

// Operation is an operation with a request of type Q and an answer of type A.
type Operation[Q, A any] struct {
	name string
	run  func(s *Service, ctx context.Context, q Q) (A, error)
}

// Do runs an operation.
func (o Operation[Q, A]) Do(ctx context.Context, c Caller, q Q) (a A, err error) {
	request, err := json.Marshal(q)
	if err != nil {
		return a, fmt.Errorf("encoding a request: %w", err)
	}
	answer, err := c.Call(ctx, o.name, request)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return a, fmt.Errorf("reading the answer to %s: %w", o.name, err)
	}
	return a, nil
}

func (o Operation[Q, A]) serve(ctx context.Context, s *Service, request []byte) ([]byte, error) {
	var q Q
	// A server of another version must not ignore a part of a request.
	strict := json.NewDecoder(bytes.NewReader(request))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&q); err != nil {
		return nil, fault.Invalid("the request does not fit this version of the server: %v", err)
	}
	a, err := o.run(s, ctx, q)
	if err != nil {
		return nil, err
	}
	answer, err := json.Marshal(a)
	return answer, fault.While(err, "encoding an answer")
}

type served interface {
	serve(ctx context.Context, s *Service, request []byte) ([]byte, error)
}

// operations returns all operations by name.
func operations() map[string]served {
	return map[string]served{
		ListPools.name: ListPools, CreatePool.name: CreatePool, DeletePool.name: DeletePool, AddPoolToken.name: AddPoolToken,
		ListUsers.name: ListUsers, CreateUser.name: CreateUser, DisableUser.name: DisableUser, EnableUser.name: EnableUser,
		DeleteUser.name: DeleteUser, ListHoldings.name: ListHoldings, HandOver.name: HandOver, ListSessions.name: ListSessions, EndSessions.name: EndSessions, MakeSignInLink.name: MakeSignInLink,
		ListTokens.name: ListTokens, CreateToken.name: CreateToken, RevokeToken.name: RevokeToken,
		ListOrganizations.name: ListOrganizations, CreateOrganization.name: CreateOrganization, RenameOrganization.name: RenameOrganization,
		ListStacks.name: ListStacks, TransferStack.name: TransferStack,
		ListGrants.name: ListGrants, AddGrant.name: AddGrant, RemoveGrant.name: RemoveGrant,
		ListEnvironmentGrants.name: ListEnvironmentGrants, AddEnvironmentGrant.name: AddEnvironmentGrant, RemoveEnvironmentGrant.name: RemoveEnvironmentGrant,
		ImportEnvironments.name: ImportEnvironments, ShowEnvironmentSource.name: ShowEnvironmentSource, SetEnvironmentSource.name: SetEnvironmentSource,
		RemoveEnvironmentSource.name: RemoveEnvironmentSource, SyncEnvironmentSource.name: SyncEnvironmentSource,
		ListEvaluations.name: ListEvaluations, RunEvaluations.name: RunEvaluations,
		DeletedStacks.name: DeletedStacks, RestoreStack.name: RestoreStack, PurgeStack.name: PurgeStack,
		ShowOrganization.name: ShowOrganization, DeleteOrganization.name: DeleteOrganization, SetQuotas.name: SetQuotas, AppointAdministrator.name: AppointAdministrator,
		WriteBackup.name: WriteBackup, BackupProgress.name: BackupProgress, ReleaseRestored.name: ReleaseRestored, RestoreStatus.name: RestoreStatus, RevokeRestored.name: RevokeRestored,
	}
}

// Long reports whether an operation can take hours. It ends when its caller no longer waits.
func Long(operation string) bool {
	return operation == WriteBackup.name || operation == ImportEnvironments.name
}

// UnknownError means that a server does not have an operation.
type UnknownError struct{ Operation string }

func (e *UnknownError) Error() string { return "the operation " + e.Operation + " does not exist" }

// Call implements [Caller]. The context says who runs the operation; see [By].
func (s *Service) Call(ctx context.Context, operation string, request []byte) ([]byte, error) {
	o, ok := operations()[operation]
	if !ok {
		return nil, &UnknownError{operation}
	}
	return o.serve(ctx, s, request)
}

// By returns a context whose operations a user of this machine runs. onBehalf is the name of the user who became
// that user, such as with sudo, or "". Only the audit log uses it.
func By(ctx context.Context, uid int, onBehalf string) context.Context {
	id := strconv.Itoa(uid)
	name := "user " + id
	if u, err := user.LookupId(id); err == nil {
		name = u.Username
	}
	if onBehalf = termtext.OneLine(onBehalf, maxName); onBehalf != "" && onBehalf != name {
		name += " (" + onBehalf + ")"
	}
	return audit.By(ctx, audit.WayCommand, audit.Actor{Kind: audit.ActorOperator, ID: id, Name: name})
}

const (
	maxName = 100
	// page is the number of entries in one answer.
	page = 500
)

// None is an empty request or answer.
type None struct{}

// All returns the entries of all answers to an operation. next returns the request for what follows an entry.
func All[Q, E any](ctx context.Context, c Caller, o Operation[Q, Page[E]], q Q, next func(Q, E) Q) ([]E, error) {
	all := []E{}
	for {
		p, err := o.Do(ctx, c, q)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Entries...)
		if !p.More || len(p.Entries) == 0 {
			return all, nil
		}
		q = next(q, p.Entries[len(p.Entries)-1])
	}
}

// Page is a part of a list.
type Page[E any] struct {
	Entries []E  `json:"entries"`
	More    bool `json:"more,omitempty"`
}
