package service

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEffective checks that drop-ins of the unit decide as whom the doctor runs.
func TestEffective(t *testing.T) {
	unit := Registered{Name: "agent", Account: SystemUser, Groups: []string{"docker"}, Profile: ProfileDocker}
	changed := unit
	changed.Account, changed.Groups = "deploy", []string{"docker", "podman"}
	for _, tt := range []struct {
		name string
		answer
		want Registered
	}{
		{"changed", answer{out: "User=deploy\nSupplementaryGroups=docker podman"}, changed},
		{"unchanged", answer{out: "User=" + SystemUser + "\nSupplementaryGroups=docker"}, unit},
		{"no answer", answer{err: errors.New("no connection")}, unit},
	} {
		commands := &scripted{rules: map[string][]answer{"systemctl show agent.service": {tt.answer}}}
		if got := unit.effective(t.Context(), commands); !cmp.Equal(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestIDs(t *testing.T) {
	got, err := Registered{Account: "root", Groups: []string{"daemon", "root"}}.ids()
	if err != nil || got.uid != 0 || got.gid != 0 || !cmp.Equal(got.groups[:2], []int{0, 1}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, r := range []Registered{{Account: "no-such-user"}, {Account: "root", Groups: []string{"no-such-group"}}} {
		if _, err := r.ids(); err == nil {
			t.Errorf("%+v: got no error", r)
		}
	}
}
