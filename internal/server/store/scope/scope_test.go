package scope

import (
	"slices"
	"testing"
)

func TestLocks(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  Set
		want []Lock
	}{
		{"free", Free, []Lock{}},
		{"server", Server(), []Lock{{Level: LevelServer}}},
		{"what remains of an organization", Organization("o").Remaining(), []Lock{{LevelServer, "", true}, {LevelOrganization, "o", false}}},
		{"organization", Organization("o"), []Lock{{LevelServer, "", true}, {LevelOrganization, "o", false}}},
		{"stack", Stack("o", "s"), []Lock{{LevelServer, "", true}, {LevelOrganization, "o", true}, {LevelStack, "s", false}}},
		{
			"an organization and a stack of it",
			Stack("o", "s").And(Organization("o")),
			[]Lock{{LevelServer, "", true}, {LevelOrganization, "o", false}, {LevelStack, "s", false}},
		},
		{
			"two organizations, named twice and in the other order",
			Organization("b").And(Organization("a"), Organization("b"), User("u")),
			[]Lock{{LevelServer, "", true}, {LevelUser, "u", false}, {LevelOrganization, "a", false}, {LevelOrganization, "b", false}},
		},
		{"shared organization", Organization("o").Shared(), []Lock{{LevelServer, "", true}, {LevelOrganization, "o", true}}},
		{
			"shared and exclusive",
			Stack("o", "s").And(Stack("o", "s").Shared(), Stack("o", "t").Shared()),
			[]Lock{{LevelServer, "", true}, {LevelOrganization, "o", true}, {LevelStack, "s", false}, {LevelStack, "t", true}},
		},
		{"server and a stack", Stack("o", "s").And(Server()), []Lock{{LevelServer, "", false}, {LevelOrganization, "o", true}, {LevelStack, "s", false}}},
	} {
		if got := tt.set.Locks(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: locks %v, want %v", tt.name, got, tt.want)
		}
	}
}
