package vcs_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/server/vcs"
)

// history is a ref of a repository in memory, whose commits have files. It is a forge, too.
type history struct {
	r       *rand.Rand
	tag     bool
	head    string
	parents map[string]string
	trees   map[string]map[string]int
}

func newHistory(r *rand.Rand, tag bool) *history {
	h := &history{r: r, tag: tag, parents: map[string]string{}, trees: map[string]map[string]int{"": {}}}
	h.head = h.commit("")
	return h
}

// commit adds a commit that changes one file.
func (h *history) commit(parent string) string {
	id := fmt.Sprintf("%040d", len(h.trees))
	h.parents[id], h.trees[id] = parent, maps.Clone(h.trees[parent])
	h.trees[id][[]string{"infra/a", "docs/a", "docs/b"}[h.r.IntN(3)]] = len(h.trees)
	return id
}

// change moves the ref, and returns the report that the forge sends.
func (h *history) change() vcs.Event {
	before, known := h.head, slices.Sorted(maps.Keys(h.parents))
	older := known[h.r.IntN(len(known))]
	switch n := h.r.IntN(8); {
	case h.head == "", n == 0:
		h.head = older // created again, or reset
	case n == 1:
		h.head = ""
	case n == 2:
		h.head = h.commit(older) // by force
	case n == 3:
		h.head = h.commit(h.commit(h.head))
	default:
		h.head = h.commit(h.head)
	}
	if h.head == before {
		h.head = h.commit(before)
	}
	return h.report(before, h.head)
}

func (h *history) report(before, after string) vcs.Event {
	e := vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Deleted: after == ""}
	if h.tag {
		e.Kind, e.Ref, e.Before = vcs.KindTag, "refs/tags/v1", "" // forges name the objects of annotated tags
	}
	return e
}

// changed returns the files between two commits. They are not known unless the second one follows.
func (h *history) changed(before, after string) vcs.Files {
	at := after
	for at != before && at != "" {
		at = h.parents[at]
	}
	if at != before || before == "" {
		return vcs.Files{}
	}
	files := vcs.Files{Known: true}
	for name, content := range h.trees[after] {
		if h.trees[before][name] != content {
			files.Names = append(files.Names, name)
		}
	}
	return files
}

// receiver is the server: its ledger, and the commits that stacks with path filters have deployed.
type receiver struct {
	h        *history
	compares bool // the forge shows changed files; else the reports do
	asks     bool
	distrust bool // every report is checked, as with forges whose reports can be forged
	seen     vcs.Seen
	done     map[[2]string]bool
	watches  []vcs.Watch
	deployed []string
}

func newReceiver(h *history) *receiver {
	r := &receiver{h: h, compares: true, asks: true, seen: vcs.Seen{Known: true, Commit: h.head, Recorded: true}, done: map[[2]string]bool{}}
	r.watches = []vcs.Watch{commits, withPaths(commits, "infra/**"), withPaths(commits, "docs/**", "!docs/b")}
	if h.tag {
		r.watches = []vcs.Watch{tags}
	}
	for range r.watches {
		r.deployed = append(r.deployed, h.head)
	}
	return r
}

func (r *receiver) receive(t *testing.T, e vcs.Event) {
	t.Helper()
	var head func() (string, error)
	if r.asks {
		head = func() (string, error) { return r.h.head, nil }
	}
	move := [2]string{e.Before, e.After}
	e, reason, err := vcs.Reconcile(r.seen, e, r.distrust || r.done[move], head)
	if err != nil {
		t.Fatal(err)
	}
	if reason != "" && reason != vcs.ReasonDeleted {
		return
	}
	r.done[move] = true
	files := vcs.Files{Names: e.Files, Known: e.Complete}
	if r.compares && !files.Known {
		files = r.h.changed(e.Before, e.After)
	}
	r.seen = vcs.Seen{Known: true, Commit: e.After}
	for i, w := range r.watches {
		if d := vcs.MatchRef(e, w, files, false); d.Action == vcs.ActionUpdate {
			r.deployed[i] = d.Commit
		}
	}
}

// poll compares the ref with the ledger.
func (r *receiver) poll(t *testing.T) {
	t.Helper()
	if r.seen.Commit == r.h.head {
		return
	}
	e := r.h.report(r.seen.Commit, r.h.head)
	e.Before = r.seen.Commit
	r.receive(t, e)
}

// check checks that each stack has deployed the selected files as the head has them.
func (r *receiver) check(t *testing.T, what string) {
	t.Helper()
	if r.h.head == "" {
		return // a deletion deploys nothing
	}
	for i, w := range r.watches {
		selected := func(commit string) map[string]int {
			tree := maps.Clone(r.h.trees[commit])
			maps.DeleteFunc(tree, func(name string, _ int) bool { return !vcs.Filter(w.Paths).Match(name) })
			return tree
		}
		if len(w.Paths) == 0 && r.deployed[i] != r.h.head || !maps.Equal(selected(r.deployed[i]), selected(r.h.head)) {
			t.Fatalf("%s: with the paths %q, the deployed commit %s has %v, but the head %s has %v",
				what, strings.Join(w.Paths, " "), r.deployed[i], selected(r.deployed[i]), r.h.head, selected(r.h.head))
		}
	}
}

// TestLostReports loses, delays, doubles and mixes the reports about a branch or a tag that is moved,
// reset, deleted and created, and polls at the end. Whatever arrives, each stack must end with the
// selected files of the head deployed.
func TestLostReports(t *testing.T) {
	for name, set := range map[string]func(r *receiver){
		"a forge":                          func(*receiver) {},
		"a forge whose reports are forged": func(r *receiver) { r.distrust = true },
		"plain git":                        func(r *receiver) { r.compares = false },
	} {
		for _, tag := range []bool{false, true} {
			for seed := range uint64(3000) {
				random := rand.New(rand.NewPCG(seed, 1))
				h := newHistory(random, tag)
				r := newReceiver(h)
				set(r)
				var waiting []vcs.Event
				var log []string
				for range 1 + random.IntN(6) {
					e := h.change()
					if !r.compares && !e.Deleted {
						files := h.changed(e.Before, e.After)
						e.Files, e.Complete = files.Names, files.Known
					}
					copies := random.IntN(3) // lost, once or doubled
					for range copies {
						waiting = append(waiting, e)
					}
					log = append(log, fmt.Sprintf("%.40s..%.40s×%d", e.Before, e.After, copies))
					for len(waiting) > 0 && random.IntN(2) == 0 { // the others come late, in any order
						at := random.IntN(len(waiting))
						r.receive(t, waiting[at])
						waiting = slices.Delete(waiting, at, at+1)
					}
					if random.IntN(6) == 0 {
						r.poll(t)
					}
				}
				for _, at := range random.Perm(len(waiting)) {
					r.receive(t, waiting[at])
				}
				r.poll(t)
				r.check(t, fmt.Sprintf("%s, tag %t, seed %d: %s", name, tag, seed, strings.Join(log, ", ")))
			}
		}
	}
}

// TestLostReportsWithoutPolls loses and doubles reports of a git server that cannot be asked. The last
// one must arrive, because nothing else shows its commit.
func TestLostReportsWithoutPolls(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 2))
		h := newHistory(random, false)
		r := newReceiver(h)
		r.compares, r.asks = false, false
		var last vcs.Event
		for range 1 + random.IntN(6) {
			last = h.change()
			files := h.changed(last.Before, last.After)
			last.Files, last.Complete = files.Names, files.Known
			for range random.IntN(3) {
				r.receive(t, last)
			}
		}
		r.receive(t, last)
		r.check(t, fmt.Sprintf("seed %d", seed))
	}
}
