package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// grantLab has a stack whose outputs jobs of others read.
type grantLab struct {
	*lab
	// robot is the credential of automation, for whose deployments no user is responsible.
	robot string
	jobs  int
	last  *protocol.JobClient
}

const granting = "/api/stacks/acme/net/prod"

func newGrantLab(l *lab) *grantLab {
	l.t.Helper()
	g := &grantLab{lab: l, robot: "token " + l.token("/api/orgs/acme/tokens", map[string]any{"name": "robot", "admin": true})}
	g.create("net", "prod", "")
	g.publish(granting)
	return g
}

// create creates a stack as a caller, with deployment settings, and returns its path.
func (g *grantLab) create(project, name, as string) string {
	g.t.Helper()
	g.send(call{Method: "POST", Path: "/api/stacks/acme/" + project, Body: map[string]any{"stackName": name}, Auth: as}).want(200, nil)
	path := "/api/stacks/acme/" + project + "/" + name
	g.do("PUT", path+"/deployments/settings", map[string]any{
		"agentPoolID":   g.pool,
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
	}).want(200, nil)
	return path
}

// jobOf starts a deployment of a stack with its settings, and returns the credential of its job.
func (g *grantLab) jobOf(stack, operation, as string, change map[string]any) string {
	g.t.Helper()
	body := map[string]any{"operation": operation, "inheritSettings": true}
	if change != nil {
		body["sourceContext"] = map[string]any{"git": change}
	}
	g.send(call{Method: "POST", Path: stack + "/deployments", Auth: as, Body: body}).want(202, nil)
	return g.running()
}

// running starts the only queued job, and returns its credential.
func (g *grantLab) running() string {
	g.t.Helper()
	g.jobs++
	_, jc := g.start(fmt.Sprintf("agent %d", g.jobs))
	g.last = jc
	def, err := jc.Definition(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	return "token " + def.Env["PULUMI_ACCESS_TOKEN"]
}

// done ends the last job.
func (g *grantLab) done() {
	g.t.Helper()
	g.end(g.last, workflow.StatusFailed)
}

// named returns a stack of the organization acme.
func (g *grantLab) named(project, name string) (st store.Stack) {
	g.t.Helper()
	err := g.db.Read(g.t.Context(), func(tx *store.Tx) (err error) {
		st, err = tx.StackByName("acme", project, name)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return st
}

// reads sends what the stock CLI sends for a StackReference, and fails the test unless all calls have the result.
func (g *grantLab) reads(job string, may bool, says ...string) {
	g.t.Helper()
	for _, path := range []string{"", "/export", "/outputs"} {
		a := g.send(call{Method: "GET", Path: granting + path, Auth: job})
		if may {
			a.want(200, nil)
			continue
		}
		a.want(403, nil)
		for _, s := range says {
			a.says(s)
		}
	}
}

func (g *grantLab) add(body map[string]any) (id string, readers []string) {
	g.t.Helper()
	var made struct {
		ID      string
		Readers []string
	}
	g.do("POST", granting+"/grants", body).want(201, &made)
	return made.ID, made.Readers
}

// TestGrants gives, narrows and revokes a grant while jobs without a user run.
func TestGrants(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newGrantLab(l)
		web := g.create("web", "prod", "")
		job := g.jobOf(web, "update", g.robot, nil)
		g.reads(job, false, "this deployment may not read the outputs of acme/net/prod: ", "An administrator of acme/net/prod can grant it at http://server.test/acme/net/prod/settings/access",
			"workflow-server stack grant add acme/net/prod --to-stack acme/web/prod")
		missing := g.send(call{Method: "GET", Path: "/api/stacks/acme/net/none", Auth: job}).want(403, nil)
		exists := g.send(call{Method: "GET", Path: granting, Auth: job}).want(403, nil)
		if strings.ReplaceAll(string(missing.Body), "none", "prod") != string(exists.Body) {
			t.Errorf("the answers reveal which stack exists:\n%s\n%s", missing.Body, exists.Body)
		}

		id, readers := g.add(map[string]any{"stack": "acme/web/prod"})
		if !slices.Equal(readers, []string{"acme/web/prod"}) {
			t.Errorf("the grant covers %v", readers)
		}
		g.reads(job, true)
		var list struct {
			ReadBy, Reads []struct {
				ID, From, CreatedBy string
				To                  struct {
					Stack, Project string
					Tag            *struct{ Name, Value string }
				}
				Previews, Excluded bool
			}
			ProjectReads bool
		}
		g.do("GET", granting+"/grants", nil).want(200, &list)
		if len(list.ReadBy) != 1 || list.ReadBy[0].To.Stack != "acme/web/prod" || list.ReadBy[0].ID != id || list.ReadBy[0].CreatedBy == "" || !list.ProjectReads || len(list.Reads) != 0 {
			t.Errorf("read by %+v", list)
		}
		g.do("GET", web+"/grants", nil).want(200, &list)
		if len(list.Reads) != 1 || list.Reads[0].From != "acme/net/prod" || len(list.ReadBy) != 0 {
			t.Errorf("reads %+v", list)
		}
		// The same grant is stored once. The organization is the granting stack's.
		if again, _ := g.add(map[string]any{"stack": "web/prod"}); again != id {
			t.Errorf("a second grant to the same stack has the id %s", again)
		}
		// What is beyond outputs remains hidden.
		for _, path := range []string{"/updates", "/config", "/deployments", "/grants", "/export/1"} {
			g.send(call{Method: "GET", Path: granting + path, Auth: job}).want(404, nil)
		}
		g.send(call{Method: "POST", Path: granting + "/import", Auth: job, Body: state(0)}).want(404, nil)

		// A stack that the granting one names does not grant in return.
		g.send(call{Method: "GET", Path: web, Auth: job}).want(200, nil)

		g.do("DELETE", granting+"/grants/"+id, nil).want(204, nil)
		g.reads(job, false)
		g.do("DELETE", granting+"/grants/"+id, nil).want(404, nil)
		for _, bad := range []map[string]any{
			{},
			{"stack": "acme/web/prod", "project": "web"},
			{"stack": "prod"},
			{"stack": "net/prod"},
			{"project": "a/b"},
			{"tag": map[string]any{"name": "pulumi:project", "value": "web"}},
			{"tag": map[string]any{"name": "", "value": "x"}},
			{"tag": map[string]any{"name": "a b", "value": "x"}},
		} {
			g.do("POST", granting+"/grants", bad).want(400, nil)
		}
		g.do("POST", granting+"/grants", map[string]any{"stack": "acme/web/none"}).want(404, nil)
	})
}

// TestGrantsByWhatRuns checks which code and which operations grants cover.
func TestGrantsByWhatRuns(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newGrantLab(l)
		jobs := map[string]string{}
		commit := strings.Repeat("a", 40)
		for i, c := range []struct {
			name, operation string
			change          map[string]any
		}{
			{"update", "update", nil},
			{"destroy", "destroy", nil},
			{"drift", "detect-drift", nil},
			{"preview", "preview", nil},
			{"branch", "update", map[string]any{"branch": "refs/heads/feature"}},
			{"commit", "update", map[string]any{"commit": commit}},
			{"pull", "update", map[string]any{"branch": "refs/pull/7/head"}},
			{"fork", "", nil},
			{"own-pull", "", nil},
		} {
			stack := g.create("web", fmt.Sprintf("s%d", i), "")
			if c.operation != "" {
				jobs[c.name] = g.jobOf(stack, c.operation, g.robot, c.change)
				continue
			}
			st := g.named("web", fmt.Sprintf("s%d", i))
			err := g.db.Write(t.Context(), st.Scope(), func(tx *store.Tx) error {
				_, err := g.service.CreateTriggered(t.Context(), tx, st, deployments.Trigger{
					Operation: workflow.OperationUpdate, Initiator: vcs.InitiatorPush,
					Checkout: store.VCSCheckout{CommitID: commit, Ref: "refs/pull/7/head", Branch: "feature", Pull: 7, Fork: c.name == "fork"},
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			jobs[c.name] = g.running()
		}
		check := func(may ...string) {
			t.Helper()
			for name, job := range jobs {
				if got := g.send(call{Method: "GET", Path: granting + "/outputs", Auth: job}).Status; (got == 200) != slices.Contains(may, name) || got != 200 && got != 403 {
					t.Errorf("%s: status %d", name, got)
				}
			}
		}
		check()
		id, _ := g.add(map[string]any{"project": "web"})
		check("update", "destroy", "drift")
		g.reads(jobs["preview"], false, "covers only updates that run what the settings of acme/web/s3 name", "stack grant add acme/net/prod --previews --to-stack acme/web/s3")
		g.reads(jobs["fork"], false, "no grant can cover it")
		if wider, _ := g.add(map[string]any{"project": "web", "previews": true}); wider != id {
			t.Errorf("the changed grant has the id %s", wider)
		}
		check("update", "destroy", "drift", "preview", "branch", "own-pull")
		g.add(map[string]any{"project": "web"})
		check("update", "destroy", "drift")
	})
}

// TestProjectReads checks the rule for stacks of one project.
func TestProjectReads(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newGrantLab(l)
		near, far := g.create("net", "near", ""), g.create("far", "prod", "")
		update, other := g.jobOf(near, "update", g.robot, nil), g.jobOf(far, "update", g.robot, nil)
		preview := g.jobOf(g.create("net", "preview", ""), "preview", g.robot, nil)
		set := func(body map[string]any) {
			t.Helper()
			g.do("PATCH", "/api/orgs/acme", body).want(200, nil)
		}
		g.do("GET", "/api/orgs/acme/metadata", nil).want(200, nil).says(`"projectReads":true`) // a new organization
		g.reads(update, true)
		g.reads(other, false)
		g.reads(preview, false, "the rule for stacks of one project covers only updates")
		// The rule gives no more than all members have.
		set(map[string]any{"setDefaultStackPermission": 0})
		g.reads(update, false)
		set(map[string]any{"setDefaultStackPermission": 101})
		g.reads(update, true)
		set(map[string]any{"setProjectReads": false})
		g.reads(update, false)
		g.do("GET", "/api/orgs/acme/metadata", nil).want(200, nil).says(`"projectReads":false`)
	})
}

// TestGrantsAndPlaces checks that no caller gets outputs by creating, renaming or tagging a stack.
func TestGrantsAndPlaces(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newGrantLab(l)
		g.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		ann := g.person("ann", "acme", "member")
		as := func(auth, method, path string, body any) answer {
			t.Helper()
			return g.send(call{Method: method, Path: path, Body: body, Auth: auth})
		}
		tag := map[string]any{"name": "tier", "value": "web"}
		early := g.create("web", "early", ann)
		g.add(map[string]any{"project": "web"})
		g.add(map[string]any{"tag": tag})
		g.reads(g.jobOf(early, "update", g.robot, nil), true) // the administrator has seen it

		created := g.jobOf(g.create("web", "created", ann), "update", g.robot, nil)
		g.reads(created, false, "no grant lets jobs of acme/web/created read it")

		moved := g.create("own", "moved", ann)
		as(ann, "POST", moved+"/rename", map[string]any{"newName": "moved", "newProject": "web"}).want(200, nil)
		g.reads(g.jobOf("/api/stacks/acme/web/moved", "update", g.robot, nil), false, "no grant lets jobs of acme/web/moved read it")

		tagged := g.create("own", "tagged", ann)
		job := g.jobOf(tagged, "update", g.robot, nil)
		as(ann, "POST", tagged+"/tags", tag).want(204, nil)
		g.reads(job, false, "no grant lets jobs of acme/own/tagged read it")
		as(ann, "DELETE", tagged+"/tags/tier", nil).want(204, nil)
		as(job, "POST", tagged+"/tags", tag).want(204, nil) // a job may tag its own stack
		g.reads(job, false)
		as(ann, "PATCH", tagged+"/tags", map[string]any{"tier": "web", "other": "x"}).want(204, nil)
		g.reads(job, false)
		as("", "PATCH", tagged+"/tags/tier", map[string]any{"value": "db"}).want(204, nil)
		g.reads(job, false)
		as("", "PATCH", tagged+"/tags/tier", map[string]any{"value": "web"}).want(204, nil) // by the administrator
		g.reads(job, true)
		as(ann, "PATCH", tagged+"/tags/tier", map[string]any{"value": "db"}).want(204, nil)
		g.reads(job, false)
		as(ann, "PATCH", tagged+"/tags/tier", map[string]any{"value": "web"}).want(204, nil)
		g.reads(job, false)

		// The CLI sends tags with the start of an update, also those of the configuration in the repository.
		begin := map[string]any{"updateKind": "update", "program": program(), "tags": map[string]string{"tier": "web"}, "journalVersion": 2}
		begun := g.create("own", "begun", ann)
		as(ann, "POST", begun+"/begin-update", begin).want(200, nil)
		g.reads(g.jobOf(begun, "update", g.robot, nil), false)
		started := g.create("own", "started", ann)
		runs := g.jobOf(started, "update", g.robot, nil)
		var made struct{ UpdateID string }
		as(runs, "POST", started+"/update", program()).want(200, &made)
		as(runs, "POST", started+"/update/"+made.UpdateID, begin).want(200, nil)
		g.reads(runs, false)
		seen := g.create("own", "seen", "")
		as("", "POST", seen+"/begin-update", begin).want(200, nil) // by the administrator
		g.reads(g.jobOf(seen, "update", g.robot, nil), true)
		g.do("GET", "/api/orgs/acme/auditlogs?eventFilter=stack.tags-changed", nil).want(200, nil).says("acme/own/begun").says("acme/own/started")

		// A grant to the stack itself covers it.
		id, _ := g.add(map[string]any{"stack": "acme/own/tagged"})
		g.reads(job, true)
		g.do("DELETE", granting+"/grants/"+id, nil).want(204, nil)

		// With the permission to read the granting stack, ann may do the same.
		g.do("PUT", granting+"/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		g.reads(g.jobOf(g.create("web", "allowed", ann), "update", g.robot, nil), true)
		var list struct {
			Reads []struct {
				To       struct{ Project string }
				Excluded bool
			}
		}
		g.do("GET", "/api/stacks/acme/web/created/grants", nil).want(200, &list)
		if len(list.Reads) != 1 || !list.Reads[0].Excluded || list.Reads[0].To.Project != "web" {
			t.Errorf("the excluded stack reads %+v", list.Reads)
		}
		// Callers who may not see the granting stack do not learn of it.
		bob := g.person("bob", "acme", "member")
		guess := g.create("web", "guess", bob)
		for _, auth := range []string{bob, g.jobOf(guess, "update", g.robot, nil)} {
			as(auth, "GET", guess+"/grants", nil).want(200, nil).says(`"reads":[]`)
		}
	})
}

// TestGrantsAndLives checks what remains of grants when stacks are deleted, restored, renamed or transferred, and when
// their names are used again.
func TestGrantsAndLives(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		g := newGrantLab(l)
		g.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		ann := g.person("ann", "acme", "member")
		restore := func(auth string) {
			t.Helper()
			var list struct{ DeletedStacks []struct{ ID string } }
			g.send(call{Method: "GET", Path: "/api/orgs/acme/restore-stack", Auth: auth}).want(200, &list)
			if len(list.DeletedStacks) != 1 {
				t.Fatalf("deleted: %v", list)
			}
			g.send(call{Method: "POST", Path: "/api/orgs/acme/restore-stack/" + list.DeletedStacks[0].ID, Body: map[string]any{}, Auth: auth}).want(204, nil)
		}
		web := g.create("web", "prod", ann)
		g.add(map[string]any{"stack": "acme/web/prod"})
		g.reads(g.jobOf(web, "update", g.robot, nil), true)
		g.done()

		// A stack with the name of the deleted one is another stack.
		g.do("DELETE", web+"?force=true", nil).want(204, nil)
		g.create("web", "prod", ann) // ann may not read
		job := g.jobOf(web, "update", g.robot, nil)
		g.reads(job, false)
		g.done()
		g.do("POST", web+"/rename", map[string]any{"newName": "second"}).want(200, nil)
		restore("")
		g.reads(g.jobOf(web, "update", g.robot, nil), true)
		g.done()

		// The grant follows the stack, and not its name.
		g.do("POST", web+"/rename", map[string]any{"newName": "renamed"}).want(200, nil)
		web = "/api/stacks/acme/web/renamed"
		job = g.jobOf(web, "update", g.robot, nil)
		g.reads(job, true)

		// A deleted stack gives nothing. Restored, it gives what it gave.
		g.do("DELETE", granting+"?force=true", nil).want(204, nil)
		g.reads(job, false)
		g.create("net", "prod", "")
		g.reads(job, false)
		g.do("POST", granting+"/rename", map[string]any{"newName": "other"}).want(200, nil)
		restore("")
		g.reads(job, true)
		g.done()

		// Grants that were made while the stack was deleted do not cover it, unless who restores it may read.
		late := g.create("late", "a", ann)
		g.send(call{Method: "DELETE", Path: late + "?force=true", Auth: ann}).want(204, nil)
		g.add(map[string]any{"project": "late"})
		restore(ann)
		g.reads(g.jobOf(late, "update", g.robot, nil), false, "no grant lets jobs of acme/late/a read it")

		// A transfer ends the grants of the stack and to it, in both directions.
		g.newOrganization("rival")
		g.administers("admin", "rival")
		g.do("DELETE", web+"/deployments/settings", nil).want(200, nil)
		g.do("POST", web+"/transfer", map[string]any{"toOrg": "rival"}).want(204, nil)
		g.do("POST", "/api/stacks/rival/web/renamed/transfer", map[string]any{"toOrg": "acme"}).want(204, nil)
		var list struct {
			ReadBy, Reads []struct{ To struct{ Project string } }
		}
		g.do("GET", granting+"/grants", nil).want(200, &list)
		if len(list.ReadBy) != 1 || list.ReadBy[0].To.Project != "late" {
			t.Errorf("after the transfer, read by %+v", list.ReadBy)
		}
	})
}
