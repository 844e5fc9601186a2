// Package scope names what a write of the database is serial with. Every row has one owner, such as a
// stack or an organization. A write names the owners of all rows that it changes, and of those that it
// reads in order to decide. Two writes with a common scope never run at the same time, on any server, unless both share it.
package scope

import (
	"cmp"
	"slices"
)

// Level is a kind of owner. Locks are acquired from the first level to the last.
type Level int8

// The levels, from the widest to the narrowest.
const (
	LevelServer       Level = iota + 1 // what exists once: the key ring, signing keys, the first start
	LevelUser                          // a user, with sessions, passkeys and personal tokens
	LevelOrganization                  // an organization, with members, teams, pools, settings
	LevelClaims                        // the claims of an organization's jobs
	LevelRepository                    // a repository of an integration, with its refs, pull requests and events
	LevelStack                         // a stack, with its updates, deployments, jobs and schedules
	LevelWebhook                       // a webhook, with its deliveries
	LevelAgent                         // an agent, with its session
)

// Scope is one owner.
type Scope struct {
	Level Level
	Key   string
	// Org is the organization to which the owner belongs, "" for none.
	Org string
	// Shared is set if the write only depends on the owner's rows, or adds rows on which no other write
	// depends.
	Shared bool
	// Known is set if the owner was found before: the write fails if it has been removed since.
	Known bool
	// Remaining is set if the write may run although the owner's organization is deleted.
	Remaining bool
}

// Set is the owners that a write names. The order does not matter.
type Set []Scope

// Free is for a write of one statement that commutes with all others, or that repeats the condition
// under which it is right.
var Free = Set(nil)

// Server is the owner of what exists once. No other write with a scope runs at the same time.
func Server() Set { return Set{{Level: LevelServer}} }

// User is a user, by id.
func User(id string) Set { return Set{{Level: LevelUser, Key: id}} }

// Organization is an organization, by id.
func Organization(id string) Set { return Set{{Level: LevelOrganization, Key: id, Org: id}} }

// Claims is the owner of the number of an organization's active jobs.
func Claims(org string) Set { return Set{{Level: LevelClaims, Key: org, Org: org}} }

// Repository is a repository of an organization, by id.
func Repository(org, id string) Set { return Set{{Level: LevelRepository, Key: id, Org: org}} }

// Stack is a stack of an organization, by id.
func Stack(org, id string) Set { return Set{{Level: LevelStack, Key: id, Org: org}} }

// Webhook is a webhook of an organization, by id.
func Webhook(org, id string) Set { return Set{{Level: LevelWebhook, Key: id, Org: org}} }

// Agent is an agent of an organization, by its own id.
func Agent(org, id string) Set { return Set{{Level: LevelAgent, Key: id, Org: org}} }

// Shared returns the same owners for a write that only depends on their rows, or adds rows on which no
// other write depends. Such writes run at the same time as each other, and as the writes of what belongs
// to an organization, but not as the writes that own the rows.
func (s Set) Shared() Set {
	shared := slices.Clone(s)
	for i := range shared {
		shared[i].Shared = true
	}
	return shared
}

// Remaining returns the same owners for a write that only measures or removes what is stored. It also runs for what
// remains of a deleted organization, to which every other write is refused.
func (s Set) Remaining() Set {
	remaining := slices.Clone(s)
	for i := range remaining {
		remaining[i].Remaining = true
	}
	return remaining
}

// And returns the owners of all sets.
func (s Set) And(others ...Set) Set {
	return slices.Concat(append([]Set{s}, others...)...)
}

// Lock is a lock on an owner.
type Lock struct {
	Level  Level
	Key    string
	Shared bool
}

// Locks returns the locks of a set in the order in which every write acquires them: its owners, and
// shared the organizations and the server to which they belong.
func (s Set) Locks() []Lock {
	exclusive := map[Lock]bool{}
	add := func(level Level, key string, alone bool) {
		lock := Lock{Level: level, Key: key}
		exclusive[lock] = exclusive[lock] || alone
	}
	for _, owner := range s {
		add(owner.Level, owner.Key, !owner.Shared)
		if owner.Level > LevelServer {
			add(LevelServer, "", false)
		}
		if owner.Level > LevelOrganization && owner.Org != "" {
			add(LevelOrganization, owner.Org, false)
		}
	}
	locks := make([]Lock, 0, len(exclusive))
	for lock, alone := range exclusive {
		lock.Shared = !alone
		locks = append(locks, lock)
	}
	slices.SortFunc(locks, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Key, b.Key))
	})
	return locks
}
