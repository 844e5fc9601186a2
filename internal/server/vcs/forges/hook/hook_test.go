package hook

import (
	"strings"
	"testing"

	"workflowagent/internal/server/vcs"
)

func TestID(t *testing.T) {
	for sent, kept := range map[string]bool{
		"d-1": true, "{00000000-0000-0000-0000-000000000001}": true, "": false, "with space": false, "line\nbreak": false, "ä": false, strings.Repeat("x", maxID+1): false,
	} {
		id := ID(sent, []byte("body"))
		if (id == sent) != kept || !kept && !strings.HasPrefix(id, "sha256:") {
			t.Errorf("%q: %q", sent, id)
		}
	}
	first, again, other := ID("", []byte("a")), ID("", []byte("a")), ID("", []byte("b"))
	if first != again || first == other {
		t.Error("the ids of bodies are not those of their content")
	}
}

func TestCommit(t *testing.T) {
	full := strings.Repeat("aB", 20)
	for id, want := range map[string]string{
		full: strings.ToLower(full), strings.Repeat("c", 64): strings.Repeat("c", 64), "": "", strings.Repeat("0", 40): "", full[:12]: "", full[:39] + "g": "", full + "a": "",
	} {
		if got := Commit(id); got != want {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestPush(t *testing.T) {
	after := strings.Repeat("a", 40)
	for ref, kind := range map[string]vcs.Kind{
		"refs/heads/main": vcs.KindPush, "refs/heads/a/b": vcs.KindPush, "refs/tags/v1": vcs.KindTag, "refs/notes/x": "", "main": "", "refs/heads/": "", "refs/heads/a..b": "",
		"refs/heads/a b": "", "refs/heads/-x\n": "", "": "", "refs/heads/a.lock": "",
	} {
		event, ok := Push(vcs.RepoID{ID: "1"}, ref, "", after, vcs.Account{})
		if ok != (kind != "") || ok && (event.Kind != kind || event.Ref != ref || event.After != after) {
			t.Errorf("%q: %t, %+v", ref, ok, event)
		}
	}
}
