// Package vcs contains what is the same for all forges, and the rules for what a change of a
// repository deploys. Webhooks and polls yield events, which are only hints: the ledger of refs and
// the forge's own answers decide what happened, and the watches of stacks decide what to deploy.
// Package gitops/dispatch applies the rules.
//
// The packages below it know one forge each; they import this package and are passed to it.
package vcs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/outbound"
)

// Kind is the kind of an [Event].
type Kind string

// The kinds of events. Everything else that a forge sends is ignored.
const (
	KindPush       Kind = "push"        // a branch was created, moved or deleted
	KindTag        Kind = "tag"         // a tag was created, moved or deleted
	KindPull       Kind = "pull"        // a pull request changed in any way
	KindRerun      Kind = "rerun"       // an account requested another run of a check
	KindMergeGroup Kind = "merge-group" // a merge queue requests checks of a commit
	KindAccess     Kind = "access"      // repositories were renamed, added to or removed from an integration
)

// Event is what a delivery or a poll says about a repository, in the same form for all forges.
type Event struct {
	Kind Kind
	Repo RepoID
	// Ref is the full name, such as refs/heads/main, of the ref of a push, a tag or a merge group.
	Ref string
	// Before and After are full commit ids. Before is "" if the ref was created or if the delivery
	// does not say. After is the commit, never an annotated tag's object; it is "" if the ref was
	// deleted, or if the delivery does not say and the forge must be asked. For [KindRerun] and
	// [KindMergeGroup], After is the commit that is to be checked.
	Before, After string
	// Unanchored reports that Before is "" because the sender does not say what it was.
	Unanchored bool
	// Deleted reports that the ref no longer exists.
	Deleted bool
	// Files are the changed files, with both names of a renamed file. If Complete is not set, there
	// may be others.
	Files    []string
	Complete bool
	// Pull is the number of the pull request of a [KindPull] or [KindRerun] event.
	Pull int
	// Check is the context of the report to repeat; see [Report.Context].
	Check string
	// Message is the message of the head commit, if the delivery contains it.
	Message string
	// Content identifies the delivery of a [KindRerun] event by what its signature covers: some forges
	// do not sign the id of a delivery, so that a replay can have another id.
	Content string
	// Sender is the forge's account that caused the event. It never comes from a commit's author.
	Sender Account
}

// Account is an account of a forge. It grants nothing on this server.
type Account struct {
	ID   string // the forge's stable id
	Name string // for display
	Bot  bool
}

// RepoID identifies a repository of a forge.
type RepoID struct {
	ID   string // the forge's stable id; for plain git, [Repo.CloneURL] without the suffix .git
	Name string // such as owner/name; it can change
}

// Repo describes a repository.
type Repo struct {
	RepoID
	CloneURL string
	Branch   string // default branch, or ""
}

// Delivery is a request that a forge sent to this server.
type Delivery struct {
	Header map[string]string // names are in lower case
	Body   []byte
}

// Parsed is the content of a delivery.
type Parsed struct {
	// ID is the same each time that the forge sends the same delivery, and differs between others.
	ID string
	// Installation is the id of the installation of a GitHub App, or "".
	Installation string
	Events       []Event
	// Ignored is the reason that the delivery contains no events.
	Ignored Ignored
}

// Ignored is why a delivery is not an event. It is no error: the forge receives a success.
type Ignored struct {
	Reason Reason
	Detail string // such as the name of the forge's event
}

// ErrUnverified is returned by [Hooks.Verify]. The sender never learns more.
var ErrUnverified = errors.New("the delivery's signature is missing or wrong")

// Hooks verifies and parses the deliveries of a kind of forge. It makes no requests.
type Hooks interface {
	// Verify returns an error unless the delivery is authentic under one of the secrets. Without
	// secrets it always returns an error.
	Verify(d Delivery, secrets [][]byte) error
	// Parse returns the content of a verified delivery. An error means that the body is not what
	// the forge documents.
	Parse(d Delivery) (Parsed, error)
}

// Forge is a kind of forge.
type Forge interface {
	Hooks
	// Connect returns a client. It checks the configuration, and makes no requests. The client also
	// implements the interfaces [Reader], [Lister], [Pulls], [Reporter], [Commenter] and [Hooker] if the forge
	// supports them.
	Connect(c Connection) (Repository, error)
}

// Connection is the configuration of an integration. Requests go only to its URLs.
type Connection struct {
	IntegrationID string
	BaseURL       string // of pages and clones, without a trailing slash
	APIURL        string // "" means the forge's default for BaseURL
	Owner         string // GitHub account, GitLab group, Bitbucket workspace or Azure DevOps organization
	Project       string // Azure DevOps project
	Credential    Credential
	App           *App
	CACertificate string   // PEM, trusted in addition to the system's
	HostKeys      []string // of SSH servers, as lines of known_hosts
	Reach         outbound.Reach
}

// App is the GitHub App of a [Connection].
type App struct {
	ID           string
	PrivateKey   string // PEM
	Installation string
	// WholeInstallation lets [Repository.CloneAuth] return a token for all repositories of the
	// installation instead of one.
	WholeInstallation bool
}

// Credential grants access to repositories. Exactly one of Password and SSHPrivateKey is set, or
// neither for public repositories.
type Credential struct {
	UserName string // "" means the forge's default for Password
	Password string // or token
	// SSHPrivateKey is in PEM form, and SSHPassphrase its passphrase.
	SSHPrivateKey, SSHPassphrase string
	// Environment are variables for jobs, such as GITHUB_TOKEN. All values are secrets.
	Environment map[string]string
	Expires     time.Time // zero means never
}

// Repository is a client for the repositories of an integration. Errors wrap [ErrNotFound],
// [ErrRefused] or a [RateLimited] where these apply, and contain no secrets.
type Repository interface {
	// Find returns the repository with a name. If it was renamed, the answer has the new name.
	Find(ctx context.Context, name string) (Repo, error)
	// Head returns the commit of a full ref, peeled.
	Head(ctx context.Context, repo RepoID, ref string) (commit string, err error)
	// Changed returns the changed files. complete is not set if the forge shows only some of them,
	// or if c is a push that is no fast-forward.
	Changed(ctx context.Context, repo RepoID, c Change) (files []string, complete bool, err error)
	// Refs returns the refs whose full names begin with one of the prefixes, by the git protocol,
	// which is cheap for both sides. Polls use it.
	Refs(ctx context.Context, repo RepoID, prefixes []string) ([]Ref, error)
	// CloneAuth returns a credential with the least rights that can clone the repository.
	CloneAuth(ctx context.Context, repo RepoID) (Credential, error)
}

// Ref is a branch, a tag, or the head of a pull request.
type Ref struct {
	Name   string // full
	Commit string // never an annotated tag's object
}

// Reader reads files of commits.
type Reader interface {
	// ReadFiles returns the regular files in a folder of a commit that wanted selects by their paths, which are relative to
	// the folder; "" is the root. wanted also selects the folders below it, whose paths end with a slash. The error wraps
	// [ErrNoFolder] if the commit has no such folder.
	ReadFiles(ctx context.Context, repo RepoID, commit, folder string, wanted func(path string) bool) ([]File, error)
}

// File is a file of a commit.
type File struct{ Path, Content string }

// Lister lists the repositories of an integration.
type Lister interface {
	// Repos returns a page of repositories, and the next page, or "".
	Repos(ctx context.Context, page string) (repos []Repo, next string, err error)
}

// Pulls reads pull requests.
type Pulls interface {
	Pull(ctx context.Context, repo RepoID, number int) (Pull, error)
	// Pulls returns the pull requests that were updated since a cursor, oldest first, and the next
	// cursor. The zero cursor returns the open ones. If there are too many of them, it returns the
	// latest and [ErrPartial].
	Pulls(ctx context.Context, repo RepoID, since Cursor) ([]Pull, Cursor, error)
	// MayWrite reports whether an account, given by its id, may push to the repository.
	MayWrite(ctx context.Context, repo RepoID, account Account) (bool, error)
}

// Reporter shows the state of deployments next to commits.
type Reporter interface {
	// Report creates or replaces the report with the same context and commit, and returns its id,
	// which the caller stores and sets in the next call.
	Report(ctx context.Context, repo RepoID, r Report) (id string, err error)
}

// Commenter comments on pull requests.
type Commenter interface {
	// Comment creates the comment, or replaces the one with the comment's id. If that was deleted,
	// it replaces the comment of its own account that contains the marker, or else creates one.
	Comment(ctx context.Context, repo RepoID, pull int, c Comment) (id string, err error)
	// CommentLimit is the maximum length of a comment's body, in characters.
	CommentLimit() int
}

// Hooker registers webhooks.
type Hooker interface {
	// EnsureHook creates or repairs the webhook with the URL.
	EnsureHook(ctx context.Context, repo RepoID, h Hook) error
}

// Cursor is a position in the pull requests of a repository. Only the client understands it.
type Cursor string

// Change is a change of files: of a push, if Before is set, else of a whole pull request.
type Change struct {
	Before, After string
	Pull          int
}

// PullState is the state of a pull request.
type PullState string

// The states of pull requests.
const (
	PullOpen   PullState = "open"
	PullClosed PullState = "closed" // without a merge
	PullMerged PullState = "merged"
)

// Pull is a pull request as the forge describes it now.
type Pull struct {
	Number int
	Title  string
	URL    string
	State  PullState
	Head   string // full commit id
	Base   string // short name of the branch
	Source string // short name of the source branch, in the fork if it is one
	// Ref is the full ref in the base repository from which Head can be fetched. It is "" if there
	// is none, as for forks on some forges.
	Ref    string
	Draft  bool
	Labels []string
	// Fork reports that the head is not the repository's own: it is in another repository, compared by
	// id, or in a deleted one, or Doubt says why. Who may push to the repository has not necessarily
	// made it. A client can only refute that a head is the repository's own; whoever uses a pull
	// request that is not refuted must compare its head with that of the branch Source.
	Fork bool
	// Doubt is [ReasonNoBranch] or [ReasonUnconfirmed], or "" for the head in another repository.
	Doubt     Reason
	Author    Account
	UpdatedAt time.Time
}

// ReportState is the state of a [Report].
type ReportState string

// The states of reports.
const (
	ReportPending   ReportState = "pending"
	ReportRunning   ReportState = "running"
	ReportSucceeded ReportState = "succeeded"
	ReportFailed    ReportState = "failed"
	ReportNeutral   ReportState = "neutral" // concluded without an opinion; a success where the forge has no such state
	ReportAction    ReportState = "action"  // a person must act; pending where the forge has no such state
)

// Report is a commit status or a check.
type Report struct {
	ID      string // as returned by the previous call for this context and commit, or ""
	Context string // name, unique for a commit
	Commit  string
	Pull    int // 0 if the commit was pushed
	State   ReportState
	Summary string // one line of plain text
	Details string // Markdown, for checks only
	URL     string
}

// Comment is a comment on a pull request.
type Comment struct {
	ID     string // as returned by the previous call, or ""
	Marker string // text in Body that identifies the comment
	Body   string // Markdown
}

// Hook is a webhook to register.
type Hook struct {
	URL    string
	Secret string
}

// The errors of clients.
var (
	// ErrNotFound means that the repository, ref or pull request does not exist, or is not visible.
	ErrNotFound = errors.New("the forge does not have it, or hides it from this integration")
	// ErrGone means that the forge says that it never will have it again. It wraps [ErrNotFound].
	ErrGone = fmt.Errorf("it no longer exists: %w", ErrNotFound)
	// ErrNoFolder means that a commit does not contain a folder.
	ErrNoFolder = errors.New("the folder does not exist there")
	// ErrForeign means that a name is not that of a repository of the integration. No request was made.
	ErrForeign = errors.New("the integration has no such repository")
	// ErrRejected means that the forge understood a request, and will answer the same to it each time.
	ErrRejected = errors.New("the forge rejects the request")
	// ErrPartial means that a list is so long that only a part of it was read.
	ErrPartial = errors.New("the forge's list is too long, and was read only in part")
	// ErrRefused means that the forge does not accept the integration's credentials or rights.
	ErrRefused = errors.New("the forge does not accept the integration's credentials, or they lack a permission")
)

// RateLimited means that the forge accepts no requests before a time.
type RateLimited struct {
	Until time.Time
}

func (e *RateLimited) Error() string {
	return fmt.Sprintf("the forge accepts no more requests before %s", e.Until.UTC().Format(time.RFC3339))
}

// Watch is what a stack's settings say about one repository.
type Watch struct {
	StackID, OrgID, Project, Stack string
	IntegrationID                  string
	Repo                           RepoID
	Branch                         string // short name; "" means that there is no branch to watch
	DeployCommits                  bool
	PreviewPulls                   bool
	Template                       bool // of review stacks
	DeployTags                     bool
	DeployPull                     int // the pull request that the stack deploys, or 0
	Paths, TagFilters, Labels      []string
}

// Action is what a [Decision] does.
type Action string

// The actions of decisions.
const (
	ActionNone    Action = ""
	ActionUpdate  Action = "update"
	ActionPreview Action = "preview"
	ActionReview  Action = "review" // the review stack of the pull request is to deploy the commit
	ActionSkip    Action = "skip"   // queued previews of the pull request are skipped
)

// Decision is what an event means for a stack.
type Decision struct {
	Watch  Watch
	Action Action
	Reason Reason
	Detail string // such as the pattern that did not match, or ""
	Commit string
	Ref    string // full ref to which the commit belongs; "" for pull requests
	Pull   *Pull  // nil for pushes and tags
}
