package estate_test

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestFolded reads pages of groups of which some are folded, also between two pages and after the last stack.
func TestFolded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			must.OK(t, tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}))
			for i := range 108 {
				project := "a"
				if i >= 100 {
					project = "b"
				}
				if i >= 105 {
					project = "c"
				}
				must.OK(t, tx.InsertStack(store.Stack{ID: fmt.Sprint(i), OrgID: "org", Project: project, Name: fmt.Sprintf("%03d", i)}))
			}
			return nil
		}))
		service := estate.New(db, storetest.Log())
		for _, tt := range []struct{ folded, pages string }{
			{"", "a100 more / b5 c3"},
			{"a", "-a b5 c3 / "},
			{"b", "a100 more / -b c3"},
			{"c", "a100 more / b5 -c"},
			{"b c", "a100 more / -b -c"},
			{"a b", "-a -b c3 / "},
			{"a b c none", "-a -b -c / "},
		} {
			var pages []string
			for page := 1; page <= 2; page++ {
				list := must.Get(service.List(t.Context(), principal(identity.RoleAdmin), "org", estate.Query{Group: store.GroupByProject, Folded: strings.Fields(tt.folded), Page: page}))(t)
				var groups []string
				for _, g := range list.Groups {
					if g.Folded {
						groups = append(groups, "-"+g.Value)
					} else {
						groups = append(groups, fmt.Sprintf("%s%d", g.Value, len(g.Rows)))
					}
				}
				if list.More {
					groups = append(groups, "more")
				}
				pages = append(pages, strings.Join(groups, " "))
			}
			if got := strings.Join(pages, " / "); got != tt.pages {
				t.Errorf("with %q folded: %q, want %q", tt.folded, got, tt.pages)
			}
		}
	})
}

// TestViews saves views of two users, and removes those of a deleted one.
func TestViews(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			must.OK(t, tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}))
			must.OK(t, tx.InsertUser(store.User{ID: "user", Login: "user"}))
			return tx.InsertUser(store.User{ID: "other", Login: "other"})
		}))
		service := estate.New(db, storetest.Log())
		user, other := principal(identity.RoleMember), principal(identity.RoleMember)
		other.User.ID = "other"
		for _, v := range []store.View{{Name: "b", Query: "q=1"}, {Name: "a", Project: "web"}, {Name: " b ", Query: "q=2"}} {
			v.OrgID = "org"
			must.OK(t, service.SaveView(t.Context(), user, v))
		}
		must.OK(t, service.SaveView(t.Context(), other, store.View{OrgID: "org", Name: "b"}))
		names := func(p identity.Principal) (text string) {
			for _, v := range must.Get(service.Views(t.Context(), p, "org"))(t) {
				text += v.Name + "(" + v.Project + "?" + v.Query + ")"
			}
			return text
		}
		if got := names(user); got != "a(web?)b(?q=2)" {
			t.Errorf("the views are %s", got)
		}
		must.OK(t, service.DeleteView(t.Context(), user, "org", "b"))
		if got := names(user) + names(other); got != "a(web?)b(?)" {
			t.Errorf("after one was deleted: %s", got)
		}
		if err := service.SaveView(t.Context(), identity.Principal{}, store.View{OrgID: "org", Name: "x"}); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("a caller without a user: %v", err)
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.DeleteUser("user", "deleted", tx.Now()) }))
		if got := names(user); got != "" {
			t.Errorf("after the user was deleted: %s", got)
		}
	})
}
