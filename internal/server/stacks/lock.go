package stacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// The states of a [Lock].
const (
	LockAlive  = "alive"  // its client renews the lease
	LockSilent = "silent" // its client has missed renewals, but the lease is valid
	LockLapsed = "lapsed" // the lease has expired: the next update may start
)

// Lock is the running update that holds a stack, with its origin.
type Lock struct {
	Update store.Update
	// By is the name of the user or token that started the update.
	By string
	// Deployment is the deployment that runs the update, or 0.
	Deployment int64
	// From describes where the update runs, for example "deployment #42" or "GitHub Actions".
	From string
	// RunURL is the page of the CI run, from the update's environment; it can be empty. It is
	// untrusted: the client chose it.
	RunURL  string
	Since   time.Time
	Renewed time.Time
	Lapses  time.Time
	State   string
	// ChangesAt is the time at which the state changes if the client does not renew the lease; zero for
	// a lapsed lease.
	ChangesAt time.Time
	// Page is the URL of the update or deployment in the console.
	Page string
}

// silentAfter is the part of a lease after which a client that has not renewed it is silent. Clients
// renew after an eighth.
const silentAfter = 4

// Lock returns the update that holds a stack, or nil.
func (s *Service) Lock(ctx context.Context, p identity.Principal, st store.Stack) (*Lock, error) {
	if err := p.Check(st, identity.StateRead); err != nil {
		return nil, err
	}
	return store.Read(ctx, s.db, func(tx *store.Tx) (*Lock, error) {
		cur, err := tx.Stack(st.ID)
		if err != nil || cur.ActiveUpdate == "" {
			return nil, err
		}
		u, err := tx.Update(cur.ActiveUpdate)
		if err != nil || Status(u.Status) != Running {
			return nil, err
		}
		lock, err := s.lockOf(tx, cur, u, tx.Now())
		return &lock, err
	})
}

func (s *Service) lockOf(tx *store.Tx, st store.Stack, u store.Update, now time.Time) (Lock, error) {
	l := Lock{Update: u, By: "an organization token", Since: u.StartedAt, Lapses: u.LeaseExpiresAt, Renewed: u.LeaseExpiresAt.Add(-s.lease), State: LockAlive}
	if l.Renewed.Before(u.StartedAt) {
		l.Renewed = u.StartedAt
	}
	switch silent := l.Renewed.Add(s.lease / silentAfter); {
	case expired(u, now):
		l.State = LockLapsed
	case now.After(silent):
		l.State, l.ChangesAt = LockSilent, l.Lapses
	default:
		l.ChangesAt = silent
	}
	if u.RequestedBy != "" {
		by, err := tx.User(u.RequestedBy)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return l, err
		}
		l.By = by.Login
	}
	if s.url != "" {
		l.Page = s.updateURL(st.OrgName, st, u)
	}
	environment, err := environmentOf(tx, u)
	if err != nil {
		return l, err
	}
	l.From, l.RunURL = origin(environment)
	if u.DeploymentID != "" {
		d, err := tx.Deployment(u.DeploymentID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return l, err
		}
		if err == nil {
			l.Deployment, l.From, l.RunURL = d.Version, fmt.Sprintf("deployment #%d", d.Version), ""
			if s.url != "" {
				l.Page = s.console.Deployment(st.OrgName, st.Project, st.Name, d.Version)
			}
		}
	}
	return l, nil
}

// environmentOf returns the environment that an update's client described.
func environmentOf(tx *store.Tx, u store.Update) (map[string]string, error) {
	text := u.Program
	if LongProgram(u) {
		var err error
		if text, err = tx.Program(u.ID); err != nil {
			return nil, err
		}
	}
	var environment map[string]string
	if raw := rawjson.Member(rawjson.Member([]byte(text), "metadata"), "environment"); raw != nil {
		if err := json.Unmarshal(raw, &environment); err != nil {
			return nil, fmt.Errorf("decoding the environment of update %s: %w", u.ID, err)
		}
	}
	return environment, nil
}

// origin describes where a client runs, from its environment.
func origin(environment map[string]string) (from, url string) {
	system := oneWord(environment["ci.system"])
	if system == "" {
		return "the command line", ""
	}
	if number := oneWord(environment["ci.build.number"]); number != "" {
		system += " run " + number
	} else if id := oneWord(environment["ci.build.id"]); id != "" {
		system += " run " + id
	}
	url = environment["ci.build.url"]
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") || strings.ContainsAny(url, " \t\r\n") {
		url = ""
	}
	return system, url
}

// maxWord bounds the values of an environment in sentences, in bytes.
const maxWord = 80

// oneWord returns an untrusted value if it fits into a sentence, and otherwise "".
func oneWord(value string) string {
	if len(value) > maxWord || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return value
}

// Text says in a sentence who holds the stack.
func (l Lock) Text(now time.Time) string {
	what := fmt.Sprintf("%s #%d", l.Update.Kind, l.Update.Version)
	if l.Update.Preview {
		what = "a preview"
	}
	text := fmt.Sprintf("It is %s, started by %s at %s from %s", what, l.By, l.Since.UTC().Format(time.RFC3339), l.From)
	switch l.State {
	case LockLapsed:
		text += "; its lease has lapsed, so the next update may start"
	case LockSilent:
		text += fmt.Sprintf("; its client has been silent for %s, and the lease lapses at %s", words.Duration(now.Sub(l.Renewed)), l.Lapses.UTC().Format(time.RFC3339))
	default:
		text += "; it renews its lease, which lapses at " + l.Lapses.UTC().Format(time.RFC3339) + " otherwise"
	}
	return text + "."
}

// errHeld is the conflict of an operation on a stack that an update holds.
func (s *Service) errHeld(tx *store.Tx, st store.Stack, u store.Update, now time.Time) error {
	lock, err := s.lockOf(tx, st, u, now)
	if err != nil {
		return err
	}
	text := lock.Text(now)
	if lock.Page != "" {
		text += " See " + lock.Page
	}
	return fault.Conflict("Another update is currently in progress. %s", text)
}
